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

// A workshop is for packing and trying modules: a folder for the packed modules, and an environment in which the go
// command takes the family from that folder, and everything else from the usual sources of this machine.
type workshop struct {
	*family
	shelf  shelf
	env    []string
	pauses []time.Duration // pauses before a download is tried again
}

// newWorkshop creates a workshop in dir with every published module on its shelf. With an empty module cache the go
// command knows only the modules from the shelf and from the machine's proxies.
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
	// The packages are built in folders with changing names; without the names their objects are the same.
	w.env = append(w.env, "GOWORK=off", "GONOPROXY=none", "GOFLAGS=-trimpath -modcacherw -buildvcs=false")
	return w, nil
}

// proxies returns the shelf, the earlier downloads of this machine, and its usual proxies. Version control is not used:
// a module that is on no proxy does not exist.
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

// download is run for a go command that downloads. If it fails it is run again, after each of the pauses: the go
// command gives up at the first failed download.
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

// run runs a command in dir and returns its output. The error contains the output.
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
