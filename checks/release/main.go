// SPDX-License-Identifier: MIT

// Release checks that the modules of this repository can be published, and makes releases.
//
//	go run ./checks/release check          # get, build and run every published module as its users would
//	go run ./checks/release tidy           # go mod tidy, in every module
//	go run ./checks/release sizes          # write the table of docs/design.md again
//	go run ./checks/release archive DIR    # write archives of the command for each system, with checksums
//	go run ./checks/release tag v0.1.0     # commit the versions of a release, and tag it; push nothing
//
// A module proxy stores a module as a zip of the files at a tag. This program packs the files of the working tree in
// the same way, into a folder that the go command uses as a proxy.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := start(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func start(args []string) (err error) {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	wants := 0
	if command == "tag" || command == "archive" {
		wants = 1
	}
	if len(args) != wants {
		return fmt.Errorf("%q takes %d arguments, not %q", command, wants, args)
	}
	root, err := repository()
	if err != nil {
		return err
	}
	f, err := readFamily(root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	switch command {
	case "check":
		return check(f, dir, os.Stdout)
	case "tidy":
		return tidy(f, dir)
	case "sizes":
		return writeSizes(f, dir)
	case "archive":
		return archive(f, dir, args[0], f.path+"/"+programOfArchives, systems)
	case "tag":
		return tag(f, dir, args[0], os.Stdout)
	}
	return fmt.Errorf("%q is not check, tidy, sizes, archive or tag", command)
}
