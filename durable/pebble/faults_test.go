// SPDX-License-Identifier: MIT

package pebble_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/sirupsen/logrus"
)

// fileClass names the purpose of a file of a store.
func fileClass(path string) string {
	switch name := filepath.Base(path); {
	case strings.HasSuffix(name, ".log"):
		return "log"
	case strings.HasSuffix(name, ".sst"):
		return "table"
	case strings.HasPrefix(name, "MANIFEST-"):
		return "MANIFEST"
	case strings.HasPrefix(name, "marker."):
		return "marker"
	case strings.HasPrefix(name, "INVENTORY"):
		return "INVENTORY"
	case name == "COMMITTED":
		return "COMMITTED"
	case name == "store":
		return "directory"
	default:
		return "other"
	}
}

// Any write fails, in a commit or in the background. The commits return the cause. The store reports that it has
// failed, still answers reads, and closes. The next open finds everything that was acknowledged.
func TestPebble_whateverCannotBeWritten_isToldAndLosesNothing(t *testing.T) {
	ops := map[string][]errorfs.OpKind{
		"create": {errorfs.OpCreate, errorfs.OpReuseForWrite},
		"write":  {errorfs.OpFileWrite, errorfs.OpFileWriteAt},
		"sync":   {errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo},
		"rename": {errorfs.OpRename},
	}
	met := 0
	for i, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EDQUOT, syscall.EMFILE} {
		for _, class := range []string{"log", "table", "MANIFEST", "marker", "INVENTORY", "COMMITTED", "directory"} {
			for op, kinds := range ops {
				t.Run(fmt.Sprintf("%s/%s/%d", class, op, int(errno)), func(t *testing.T) {
					t.Parallel()
					var on atomic.Bool
					var hit atomic.Int64
					mem := vfs.NewCrashableMem()
					files := errorfs.Wrap(mem, errorfs.InjectorFunc(func(is errorfs.Op) error {
						if on.Load() && fileClass(is.Path) == class {
							for _, k := range kinds {
								if is.Kind == k {
									hit.Add(1)
									return errno
								}
							}
						}
						return nil
					}))
					s, err := openOn(files)
					if err != nil {
						t.Fatal(err)
					}
					h := newHistory(uint64(i))
					if err := h.commit(s, 50); err != nil {
						t.Fatal(err)
					}
					on.Store(true)
					testkit.Returns(t, "a commit", func() { err = h.commit(s, 400) })
					made := h.made.Load()
					on.Store(false)
					if hit.Load() > 0 {
						testkit.Returns(t, "the store that has failed", func() { <-s.Failed() })
						if !errors.Is(s.Err(), errno) || errors.Is(s.Err(), engine.ErrCorrupt) {
							t.Errorf("the store has failed with %v", s.Err())
						}
						if err == nil {
							err = h.commit(s, 1)
						}
						if !errors.Is(err, errno) {
							t.Errorf("after %d commits: %v", made, err)
						}
						h.wantAnswers(t, s, made)
					} else if err != nil {
						t.Fatal(err)
					}
					crashed := mem.CrashClone(vfs.CrashCloneCfg{})
					testkit.Returns(t, "Close", func() { _ = s.Close() }) // its error is the earlier one
					for _, left := range []vfs.FS{crashed, mem} {
						s, err := openOn(left)
						if err != nil {
							t.Fatalf("the next open: %v", err)
						}
						all, err := readAll(s)
						if err != nil || !h.is(all, made) && !h.is(all, made+1) {
							t.Errorf("the next open finds %d records, %v", len(all), err)
						}
						if err := s.Close(); err != nil {
							t.Error(err)
						}
					}
				})
				met++
			}
		}
	}
	if met != 4*7*4 {
		t.Errorf("%d cases", met)
	}
}

// Operations that Pebble retries in the background do not keep a processor busy.
func TestPebble_tablesThatCannotBeOpened_areNotTriedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var on atomic.Bool
		var tries atomic.Int64
		files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(is errorfs.Op) error {
			if on.Load() && is.Kind == errorfs.OpOpen && fileClass(is.Path) == "table" {
				tries.Add(1)
				return syscall.EIO
			}
			return nil
		}))
		s, err := openOn(files)
		if err != nil {
			t.Fatal(err)
		}
		on.Store(true)
		h := newHistory(1)
		if err := h.commit(s, 1000); !errors.Is(err, syscall.EIO) {
			t.Errorf("the commit: %v", err)
		}
		before := tries.Load()
		time.Sleep(time.Second)
		if n := tries.Load() - before; n > 300 {
			t.Errorf("%d tries in a second", n)
		}
		_ = s.Close() // its error is the earlier one
	})
}

// A process that has no file descriptor left for a while has not broken its store: a commit waits for one. If it waits
// for too long, the store has failed.
func TestPebble_noFileDescriptor_isWaitedFor(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		for wait, fails := range map[time.Duration]bool{pebble.DescriptorWait / 2: false, 2 * pebble.DescriptorWait: true} {
			t.Run(fmt.Sprint(int(errno), wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var on atomic.Bool
					files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(is errorfs.Op) error {
						opens := []errorfs.OpKind{errorfs.OpCreate, errorfs.OpOpen, errorfs.OpOpenDir, errorfs.OpList}
						if on.Load() && slices.Contains(opens, is.Kind) {
							return errno
						}
						return nil
					}))
					s, err := openOn(files)
					if err != nil {
						t.Fatal(err)
					}
					for _, err := range s.Keys() { // until the tasks are verified: time stands still while a mutex is waited for
						t.Fatal(err)
					}
					h := newHistory(5)
					for range 5 { // each begins a log and writes a table
						on.Store(true)
						time.AfterFunc(wait, func() { on.Store(false) })
						if err := h.commit(s, 200); fails != errors.Is(err, errno) || !fails && err != nil {
							t.Fatalf("after %d commits: %v", h.made.Load(), err)
						}
						if fails {
							break
						}
						time.Sleep(wait)
					}
					if failed := s.Err() != nil; failed != fails {
						t.Errorf("the store says %v", s.Err())
					}
					made := h.made.Load()
					if fails {
						h.wantAnswers(t, s, made)
					} else if all, err := readAll(s); err != nil || !h.is(all, made) {
						t.Errorf("the store answers with %d records, %v", len(all), err)
					}
					if err := s.Close(); fails != errors.Is(err, errno) {
						t.Errorf("Close: %v", err)
					}
				})
			})
		}
	}
}

// The process can open few files: the store reports every operation that fails because of it.
func TestPebble_fewFileDescriptors_isToldAndLosesNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot set such a limit for itself")
	}
	for limit := 12; limit <= 40; limit += 4 {
		dir := filepath.Join(t.TempDir(), "store")
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childDir+"="+dir, childFiles+"="+fmt.Sprint(limit))
		var out []byte
		var err error
		testkit.Returns(t, "the process", func() { out, err = cmd.CombinedOutput() })
		said := strings.TrimSpace(string(out))
		if err != nil || !strings.HasPrefix(said, "opened: ") && !strings.HasPrefix(said, "committed: ") {
			t.Errorf("with %d descriptors: %v: %s", limit, err, said)
			continue
		}
		s, err := openIn(dir)
		if err != nil {
			t.Errorf("with %d descriptors: the next open: %v", limit, err)
			continue
		}
		var made int
		if _, err := fmt.Sscanf(said, "committed: %d", &made); err == nil && s.Len() < made {
			t.Errorf("with %d descriptors %d tasks were acknowledged, and %d are there", limit, made, s.Len())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

const childFiles = "DURABLE_TEST_FILES"

// fewFiles opens a store with few file descriptors and commits until a commit fails, or has succeeded for long.
func fewFiles(dir string, limit uint64) {
	if err := limitFiles(limit); err != nil {
		fmt.Println("error", err)
		return
	}
	logrus.StandardLogger().SetOutput(discard{})
	s, err := openSmall(dir)
	if err != nil {
		fmt.Println("opened:", err)
		return
	}
	made := 0
	for ; made < 3000 && err == nil; made++ {
		err = s.Commit([]change{{
			Key: fmt.Sprint("key", made), From: engine.None, Due: int64(made), Data: make([]byte, 1000),
		}})
	}
	if err != nil {
		made--
	}
	_ = s.Close()
	fmt.Println("committed:", made, err)
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// A read or a compaction that meets a damaged block fails with ErrCorrupt.
func TestPebble_damagedBlock_isErrCorruptWhoeverMeetsIt(t *testing.T) {
	for _, who := range []string{"read", "compaction"} {
		t.Run(who, func(t *testing.T) {
			mem := vfs.NewMem()
			s, err := openOn(mem)
			if err != nil {
				t.Fatal(err)
			}
			// The tables have several hundred KB, so that most of their blocks are not read at the open.
			put := func(s *subject, from, to int) error {
				rnd := rand.New(rand.NewPCG(1, 1))
				for i := from; i < to; i++ {
					data := make([]byte, 3000)
					for j := range data {
						data[j] = byte(rnd.Uint32())
					}
					c := change{Key: fmt.Sprint("key", i), From: engine.None, Due: int64(i % 97), Data: data}
					if err := s.Commit([]change{c}); err != nil {
						return err
					}
				}
				return nil
			}
			if err := errors.Join(put(s, 0, 1000), s.Close()); err != nil {
				t.Fatal(err)
			}
			if s, err = openOn(mem); err != nil {
				t.Fatal(err)
			}
			<-s.verified // the blocks with the data are still unread, and no further file is deleted
			names, err := mem.List("store")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if size := len(readFile(t, mem, "store/"+name)); fileClass(name) == "table" && size > 300<<10 {
					file, err := mem.OpenReadWrite("store/"+name, vfs.WriteCategoryUnspecified)
					if err != nil {
						t.Fatal(err)
					}
					_, err = file.WriteAt([]byte("damage"), int64(size/2))
					if err := errors.Join(err, file.Close()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if who == "read" {
				_, err = readAll(s)
			} else {
				testkit.Returns(t, "a commit", func() { err = put(s, 1000, 4000) })
			}
			if !errors.Is(err, engine.ErrCorrupt) {
				t.Errorf("the %s: %v", who, err)
			}
			after := change{Key: "after", From: engine.None, Due: 1}
			if err := s.Commit([]change{after}); !errors.Is(err, engine.ErrCorrupt) {
				t.Errorf("a commit after it: %v", err)
			}
			testkit.Returns(t, "Close", func() {
				if err := s.Close(); !errors.Is(err, engine.ErrCorrupt) {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}

// A directory that is removed while the store is open is noticed by the next commit.
func TestPebble_removedDirectory_isToldByTheNextCommit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := openIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(1)
	if err := h.commit(s, 3); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := h.commit(s, 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the commit: %v", err)
	}
	testkit.Returns(t, "Close", func() { _ = s.Close() })
}

// The lock belongs to the directory, whatever path names it, and reading its files does not release it.
func TestOpen_lock_isTheDirectorys(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "store")
	s, err := openIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	link := filepath.Join(parent, "link")
	if err := os.Symlink("store", link); err != nil {
		t.Fatal(err)
	}
	listing(t, dir) // which opens, reads and closes every file
	t.Chdir(dir)
	for _, path := range []string{link, ".", "../store", "../link/."} {
		if _, err := pebble.Open(ctx, path); !errors.Is(err, pebble.ErrLocked) {
			t.Errorf("%s is opened a second time: %v", path, err)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childFiles+"=1000")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), pebble.ErrLocked.Error()) {
		t.Errorf("another process opens it: %s, %v", out, err)
	}
}

func TestOpen_relativePath_survivesChdir(t *testing.T) {
	parent := t.TempDir()
	t.Chdir(parent)
	s, err := openSmall("store")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	h := newHistory(1)
	if err := errors.Join(h.commit(s, 300), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = openIn(filepath.Join(parent, "store")); err != nil {
		t.Fatal(err)
	}
	if all, err := readAll(s); err != nil || !h.is(all, 300) {
		t.Errorf("there are %d records, %v", len(all), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpen_emptyPath_isRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := pebble.Open(ctx, ""); err == nil {
		t.Error("the current directory is opened without a word")
	}
}

// A new store takes little disk space.
func TestOpen_newStore_isSmall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := openIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(1)
	if err := h.commit(s, 20); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, n := range names {
		info, err := os.Stat(filepath.Join(dir, n.Name()))
		if err != nil {
			t.Fatal(err)
		}
		size += allocated(info)
	}
	if size > 1<<20 {
		t.Errorf("20 commits take %d bytes of the disk", size)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A format of Pebble that this program does not know is reported as a later version, not as damage.
func TestOpen_laterFormatOfPebble_isErrVersion(t *testing.T) {
	mem := vfs.NewMem()
	s, err := openOn(mem)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, mem, "store/marker.format-version.999999.999", nil)
	if _, err := openOn(mem); !errors.Is(err, engine.ErrVersion) {
		t.Errorf("the open: %v", err)
	}
}
