// SPDX-License-Identifier: MIT

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// programOfArchives is the package of the command in the archives.
const programOfArchives = "cmd/timewheel"

// systems are the systems and processors of the archives.
var systems = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// archive writes an archive of a command for each of the systems, and SHA256SUMS, into the folder out. It builds the packed
// modules as go install does, so the same modules and the same version of Go make the same archives.
func archive(f *family, dir, out, pkg string, systems []string) error {
	w, err := newWorkshop(f, dir, true)
	if err != nil {
		return err
	}
	if err := w.denyParts(pkg); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	texts, err := w.texts(pkg)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, system := range systems {
		name, program, err := w.buildFor(system, filepath.Join(dir, "gopath"), pkg)
		if err != nil {
			return err
		}
		files := append([]packed{{name, 0o755, program}}, texts...)
		base := fmt.Sprintf("%s_%s_%s", path.Base(pkg), w.version, strings.ReplaceAll(system, "/", "_"))
		pack, extension := tarred, ".tar.gz"
		if strings.HasPrefix(system, "windows/") {
			pack, extension = zipped, ".zip"
		}
		text, err := pack(base, files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, base+extension), text, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), base+extension)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// A packed is a file of an archive.
type packed struct {
	name string
	mode fs.FileMode
	text []byte
}

// texts returns the files next to the program: the licence and the README of the command.
func (w *workshop) texts(pkg string) ([]packed, error) {
	licence, err := os.ReadFile(filepath.Join(w.dir, "LICENSE"))
	if err != nil {
		return nil, err
	}
	readme, err := os.ReadFile(filepath.Join(w.dir, filepath.FromSlash(strings.TrimPrefix(pkg, w.path+"/")), "README.md"))
	return []packed{{"LICENSE", 0o644, licence}, {"README.md", 0o644, readme}}, err
}

// buildFor installs the command for a system, and returns the name and the content of the program.
func (w *workshop) buildFor(system, gopath, pkg string) (name string, program []byte, err error) {
	goos, goarch, _ := strings.Cut(system, "/")
	in := *w
	in.env = append(slices.Clip(w.env), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOPATH="+gopath, "GOBIN=")
	if err := os.MkdirAll(gopath, 0o755); err != nil {
		return "", nil, err
	}
	if _, err := in.download(gopath, "install", "-ldflags=-s -w", pkg+"@"+w.version); err != nil {
		return "", nil, err
	}
	if name = path.Base(pkg); goos == "windows" {
		name += ".exe"
	}
	bin := filepath.Join(gopath, "bin")
	if system != runtime.GOOS+"/"+runtime.GOARCH {
		bin = filepath.Join(bin, goos+"_"+goarch)
	}
	program, err = os.ReadFile(filepath.Join(bin, name))
	return name, program, err
}

// tarred returns a compressed tar of the files in a folder.
func tarred(folder string, files []packed) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: folder + "/" + f.name, Mode: int64(f.mode), Size: int64(len(f.text))}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err := z.Close()
	return out.Bytes(), err
}

// zipped returns a zip of the files in a folder.
func zipped(folder string, files []packed) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		h := &zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate}
		h.SetMode(f.mode)
		to, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
