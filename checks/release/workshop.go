// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A workshop is where modules are packed and tried: a folder for the packed modules, and an environment in
// which the go command takes the family from there, and everything else from where this machine takes it.
type workshop struct {
	*family
	shelf  shelf
	env    []string
	pauses []time.Duration // before a download is tried again
}

// newWorkshop makes a workshop in dir with every published module on its shelf. With an empty module cache
// the go command knows nothing but what it gets from the shelf and from the machine's proxies.
func newWorkshop(f *family, dir string, emptyCache bool) (*workshop, error) {
	w := &workshop{family: f, shelf: shelf(filepath.Join(dir, "proxy"))}
	for _, m := range f.published {
		if err := w.shelf.put(f, m); err != nil {
			return nil, err
		}
	}
	for _, key := range []string{"GOPROXY", "GONOSUMDB", "GOMODCACHE"} {
		value, err := goEnv(key)
		if err != nil {
			return nil, err
		}
		switch key {
		case "GOPROXY":
			if value != "off" {
				w.pauses = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
			}
			value = w.proxies(value)
		case "GONOSUMDB":
			value = strings.TrimPrefix(value+","+f.path, ",")
		case "GOMODCACHE":
			if emptyCache {
				value = filepath.Join(dir, "modcache")
			}
		}
		w.env = append(w.env, key+"="+value)
	}
	// The packages are built in folders whose names change; their objects are the same if no name is in them.
	w.env = append(w.env, "GOWORK=off", "GONOPROXY=none", "GOFLAGS=-trimpath -modcacherw -buildvcs=false")
	return w, nil
}

// proxies returns the shelf, what this machine has downloaded before, and the proxies that it asks otherwise.
// No version control is asked: what is not on a proxy is not there.
func (w *workshop) proxies(machine string) string {
	list := "file://" + filepath.ToSlash(string(w.shelf))
	if cache, err := goEnv("GOMODCACHE"); err == nil {
		list += ",file://" + filepath.ToSlash(filepath.Join(cache, "cache", "download"))
	}
	for _, proxy := range strings.FieldsFunc(machine, func(r rune) bool { return r == ',' || r == '|' }) {
		if proxy != "direct" {
			list += "," + proxy
		}
	}
	return list
}

// download runs a go command that downloads, as run does. It is run again if it fails, after each of the pauses:
// the go command gives up at the first download that fails.
func (w *workshop) download(dir string, args ...string) (string, error) {
	out, err := w.run(dir, "go", args...)
	for _, pause := range w.pauses {
		if err == nil {
			break
		}
		time.Sleep(pause)
		out, err = w.run(dir, "go", args...)
	}
	return out, err
}

// run runs a command in dir and returns what it prints. Its error has what it says.
func (w *workshop) run(dir string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), w.env...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &out, &complaint)
	}
	return out.String(), nil
}
