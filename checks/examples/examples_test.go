// SPDX-License-Identifier: MIT

// Package examples checks that every exported name of the published packages is used in an example.
package examples

import (
	"bytes"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/seed581295f1/timewheel"

// unpublished are the folders that docs/versions.md excludes from all promises.
var unpublished = []string{"internal", "test", "checks", "bench", "examples"}

// exempt are the names that need no example, each with a reason.
var exempt = map[string]string{
	"timewheel.Layout.String":           byFmt,
	"durable.DuplicateKeysError.Error":  byFmt,
	"durable.DuplicateKeysError.Unwrap": "is called by package errors",
	"durable.RepeatedError.Error":       byFmt,
	"durable.RepeatedError.Unwrap":      "is called by package errors",
	"durable.DiskStats":                 "is a part of Stats",
	"durable.MaxOnce":                   "is named by Task.Once",
	"durable.RunningError.Error":        byFmt,
	"durable.RunningError.Unwrap":       "is called by package errors",
	"durable.State.String":              byFmt,
	"durable.Limit.String":              byFmt,
	"durable.KindLimits.String":         byFmt,
	"durable.Attempt.String":            byFmt,
	"durable.PastRun.String":            byFmt,
	"durable/enginetest.Link.Walk":      byNode,
	"durable/enginetest.Locks.Count":    byNode,
	"durable/enginetest.Locks.Claim":    byNode,
	"durable/enginetest.Locks.Confirm":  byNode,
	"durable/enginetest.Locks.Release":  byNode,
	"durable/postgres.Engine.Count":     byNode,
	"durable/postgres.Engine.Walk":      byNode,
	"durable/enginetest.Link.Claim":     byNode,
	"durable/enginetest.Link.Confirm":   byNode,
	"durable/enginetest.Link.Get":       byNode,
	"durable/enginetest.Link.Join":      byNode,
	"durable/enginetest.Link.Leave":     byNode,
	"durable/enginetest.Link.Reap":      byNode,
	"durable/enginetest.Link.Release":   byNode,
	"durable/enginetest.Link.Renew":     byNode,
	"durable/postgres.Engine.Claim":     byNode,
	"durable/postgres.Engine.Commit":    byNode,
	"durable/postgres.Engine.Confirm":   byNode,
	"durable/postgres.Engine.Get":       byNode,
	"durable/postgres.Engine.Join":      byNode,
	"durable/postgres.Engine.Leave":     byNode,
	"durable/postgres.Engine.Reap":      byNode,
	"durable/postgres.Engine.Release":   byNode,
	"durable/postgres.Engine.Renew":     byNode,
	"durable/postgres.Engine.Listen":    byNode,
	"durable/postgres.Engine.Look":      byNode,
	"durable/pebble.Damage.String":      byFmt,
	"durable/pebble.Doubt.String":       byFmt,
	"durable/postgres.Engine.Health":    "is called by package metrics; engine.HealthReporter says what it does",
	"durable/author.Add":                "is in the example of durable/engine",
	"durable/author.Reschedule":         "is in the example of durable/engine",
	"durable.MaxPrefix":                 "is named by TaskSet.Prefix",
	"durable.MaxSet":                    "is named by TaskSet",
	"metrics.Attempts.Observe":          "is called by the scheduler",
	"metrics.Runs.Observe":              "is called by the wheel",
	"durable.MaxTrace":                  "is named by Task.Trace",
	"durable.MaxGroup":                  "is named by Task.Group",
	"durable.MaxMeta":                   "is named by Task.Meta",
	"durable.MaxCron":                   "is named by Task.Cron",
}

const (
	byFmt  = "is called by package fmt"
	byNode = "is called by the nodes; engine.Engine says what it does"
)

func TestEveryExportedName_isInAnExample(t *testing.T) {
	found := published(t)
	if len(found) < 8 {
		t.Errorf("found the packages %q only", slices.Collect(maps.Keys(found)))
	}
	unused := maps.Clone(exempt)
	for path, dir := range found {
		name := strings.TrimPrefix(path, module+"/")
		if name == "durable/engine" {
			continue // a contract, used completely by enginetest
		}
		for _, missing := range missing(t, path, dir) {
			full := name + "." + missing
			if _, ok := exempt[full]; !ok {
				t.Errorf("%s is in no example of its package (example*_test.go)", full)
			}
			delete(unused, full)
		}
	}
	for name, reason := range unused {
		t.Errorf("%s is exempt (it %s), and is in an example or does not exist", name, reason)
	}
}

// The check itself, on a package in which every other name is shown.
func TestMissing_namesThatNoExampleUses(t *testing.T) {
	got := missing(t, module+"/checks/examples/testdata/shop", "testdata/shop")
	want := []string{"Close", "Closed", "Full", "Shop.Close", "Unseen"}
	if !slices.Equal(got, want) {
		t.Errorf("missing are %q, want %q", got, want)
	}
}

// published returns the folders of the published packages.
func published(t *testing.T) map[string]string {
	t.Helper()
	folders := make(map[string]string)
	for line := range strings.Lines(list(t, "-f", "{{.ImportPath}}\t{{.Name}}\t{{.Dir}}", module+"/...")) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		parts := strings.Split(strings.TrimPrefix(fields[0], module+"/"), "/")
		if fields[1] != "main" && !slices.Contains(unpublished, parts[0]) && !slices.Contains(parts, "internal") {
			folders[fields[0]] = fields[2]
		}
	}
	return folders
}

// missing returns the exported names of a package that no example in the files example*_test.go of its folder
// uses, sorted. A method is Type.Method. The fields of a struct and the methods of an interface belong to their
// type.
func missing(t *testing.T, path, dir string) []string {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "example*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	imports := []string{path}
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		for _, spec := range file.Imports {
			imports = append(imports, strings.Trim(spec.Path.Value, `"`))
		}
	}
	compiled := compile(t, fset, imports)
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: compiled}
	if _, err := config.Check(path+"_test", fset, files, info); err != nil {
		t.Fatal(err)
	}
	pkg, err := compiled.Import(path)
	if err != nil {
		t.Fatal(err)
	}
	used := usedIn(files, info)
	var left []string
	for name, object := range exported(pkg) {
		if !used[object] {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	return left
}

// exported returns the exported names of a package.
func exported(pkg *types.Package) map[string]types.Object {
	all := make(map[string]types.Object)
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		all[name] = object
		if named, ok := object.Type().(*types.Named); ok && object == named.Obj() {
			for method := range named.Methods() {
				if method.Exported() {
					all[name+"."+method.Name()] = method
				}
			}
		}
	}
	return all
}

// usedIn returns the objects that the example files use: everything to which an identifier refers, and the types of all
// expressions, because an example that calls timer.Stop() shows a Timer without naming it.
func usedIn(files []*ast.File, info *types.Info) map[types.Object]bool {
	used := make(map[types.Object]bool)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				switch object := info.Uses[id].(type) {
				case *types.Func:
					used[object.Origin()] = true
				case nil:
				default:
					used[object] = true
				}
			}
			if expr, ok := n.(ast.Expr); ok {
				typ := info.Types[expr].Type
				if pointer, ok := typ.(*types.Pointer); ok {
					typ = pointer.Elem()
				}
				if named, ok := typ.(*types.Named); ok {
					used[named.Obj()] = true
				}
			}
			return true
		})
	}
	return used
}

// compile returns an importer of the packages and their imports, from the build cache of the go command.
func compile(t *testing.T, fset *token.FileSet, packages []string) types.Importer {
	t.Helper()
	exports := make(map[string]string)
	args := append([]string{"-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...)
	for line := range strings.Lines(list(t, args...)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
}

func list(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	return string(out)
}
