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

// The commands of the page operate a service, and copy a store that is in use. A service on the copy has its tasks.
func TestPage_operateAndBackupAndRestore(t *testing.T) {
	file := built(t)
	page := read(t, "../docs/serve.md")
	script := ""
	for _, part := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		script += part[1]
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "serve.json")
	check(t, os.WriteFile(config, []byte(`{"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0", "backup": true, "operate": true}, "grace": 0,
		"kinds": {"mail": {"url": "https://hooks.example/", "secrets": ["a secret of the tests"]}}}`), 0o600))
	serve := func(store string) *service {
		t.Helper()
		return start(t, exec.Command(file, "serve", "-config", config, "-dir", filepath.Join(dir, store)))
	}
	s := serve("tasks")
	s.put("later", `{"kind": "mail", "delay": "1h"}`)
	cmd := exec.Command("sh", "-e", "-c", strings.ReplaceAll(script, "127.0.0.1:8471", s.admin))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(file)+":"+os.Getenv("PATH"), "TIMEWHEEL_DB=", "TIMEWHEEL_URL=", "TIMEWHEEL_TOKEN=")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"No task fails.", "No task matches.", "Kind mail is paused", "No kind is paused.", "mail      1"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v, want %q: %s", err, want, out)
		}
	}
	resp, err := http.Get(serve("restored").url + "/tasks/later")
	check(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("the task of the copy is answered with %d", resp.StatusCode)
	}
}
