// SPDX-License-Identifier: MIT

package deploy

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands of the page copy a store that is in use, and a service on the copy has its tasks.
func TestPage_backupAndRestore(t *testing.T) {
	file := built(t)
	page := read(t, "../docs/serve.md")
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(page)
	if script == nil {
		t.Fatal("the page has no commands")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "serve.json")
	check(t, os.WriteFile(config, []byte(`{"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0", "backup": true}, "grace": 0,
		"kinds": {"mail": {"url": "https://hooks.example/", "secrets": ["a secret of the tests"]}}}`), 0o600))
	serve := func(store string) *service {
		t.Helper()
		return start(t, exec.Command(file, "serve", "-config", config, "-dir", filepath.Join(dir, store)))
	}
	s := serve("tasks")
	s.put("later", `{"kind": "mail", "delay": "1h"}`)
	cmd := exec.Command("sh", "-e", "-c", strings.ReplaceAll(script[1], "127.0.0.1:8471", s.admin))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(file)+":"+os.Getenv("PATH"), "TIMEWHEEL_DB=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "mail") {
		t.Fatalf("%v: %s", err, out)
	}
	resp, err := http.Get(serve("restored").url + "/tasks/later")
	check(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("the task of the copy is answered with %d", resp.StatusCode)
	}
}
