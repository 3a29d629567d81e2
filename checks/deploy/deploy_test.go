// SPDX-License-Identifier: MIT

// Package deploy runs the files of deploy on one machine.
package deploy

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const folder = "../../deploy"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	check(t, err)
	return string(text)
}

// one returns the only match of a pattern's group in a text.
func one(t *testing.T, text, pattern string) string {
	t.Helper()
	all := regexp.MustCompile("(?m)"+pattern).FindAllStringSubmatch(text, -1)
	if len(all) != 1 {
		t.Fatalf("%s: %d matches", pattern, len(all))
	}
	return all[0][1]
}

// builtIn is the folder of the program, or "".
var builtIn string

// The program is built once, as the Dockerfile builds it.
var program = sync.OnceValues(func() (string, error) {
	dockerfile, err := os.ReadFile(filepath.Join(folder, "Dockerfile"))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*) -o /timewheel (\S+)$`).FindSubmatch(dockerfile)
	if m == nil {
		return "", errors.New("the Dockerfile builds no static program")
	}
	dir, err := os.MkdirTemp("", "deploy")
	if err != nil {
		return "", err
	}
	builtIn = dir
	name := filepath.Join(dir, "timewheel")
	cmd := exec.Command("sh", "-c", string(m[1])+` -o "$0" `+string(m[2]), name)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return name, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

func built(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the files are for Linux")
	}
	name, err := program()
	check(t, err)
	return name
}

// A service is a process of serve.
type service struct {
	*testing.T
	cmd   *exec.Cmd
	url   string
	admin string // address of operators, or ""
}

// start starts a process, and waits until it serves.
func start(t *testing.T, cmd *exec.Cmd) *service {
	t.Helper()
	log, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var said strings.Builder
	for lines := bufio.NewScanner(log); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if _, at, is := strings.Cut(lines.Text(), "msg=serving listen="); is {
			go io.Copy(io.Discard, log)
			admin := regexp.MustCompile(`admin=(\S+)`).FindStringSubmatch(at)
			return &service{t, cmd, "http://" + strings.Fields(at)[0], strings.Join(admin[min(1, len(admin)):], "")}
		}
	}
	t.Fatalf("it does not serve:\n%s", &said)
	return nil
}

// put adds a task.
func (s *service) put(key, task string) {
	s.Helper()
	req, err := http.NewRequest("PUT", s.url+"/tasks/"+key, strings.NewReader(task))
	check(s.T, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	check(s.T, err)
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(resp.Body)
		s.Fatalf("the task is answered with %d: %s", resp.StatusCode, text)
	}
}

// The image has a program that runs as its user, with a root file system that cannot be written, and has its store in
// the volume. SIGTERM ends it with success.
func TestImage_onAReadOnlyRoot_serves(t *testing.T) {
	dockerfile := read(t, "Dockerfile")
	_, last, _ := strings.Cut(dockerfile, "\nFROM scratch\n")
	user, volume := one(t, last, `^USER (\d+:\d+)$`), one(t, last, `^VOLUME (\S+)$`)
	if owner := one(t, last, `^COPY --from=build --chown=(\S+) /empty `+volume+`$`); owner != user || strings.HasPrefix(user, "0:") {
		t.Errorf("the volume is of %s, and the user is %s", owner, user)
	}
	var entry, args []string
	check(t, json.Unmarshal([]byte(one(t, last, `^ENTRYPOINT (.*)$`)), &entry))
	check(t, json.Unmarshal([]byte(one(t, last, `^CMD (.*)$`)), &args))

	file := built(t)
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("this process may not mount: %v: %s", err, out)
	}
	called := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { called <- r.Header.Get("Timewheel-Key") }))
	defer receiver.Close()
	root, tasks := filepath.Join(t.TempDir(), "root"), t.TempDir()
	for _, dir := range []string{root, filepath.Join(root, "etc", "timewheel"), filepath.Join(root, volume)} {
		check(t, os.MkdirAll(dir, 0o755))
	}
	text, err := os.ReadFile(file)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(root, entry[0]), text, 0o755))
	check(t, os.WriteFile(filepath.Join(root, "etc/timewheel/serve.json"), []byte(`{"listen": "127.0.0.1:0", "grace": 0, "kinds": {"k": {"url": "`+
		receiver.URL+`", "networks": ["127.0.0.1/32"], "secrets": ["a secret of the tests"]}}}`), 0o644))
	const script = `
set -e
chown "$3" "$2" && chmod 700 "$2"
mount --bind "$1" "$1"
mount --bind "$2" "$1$4"
mount -o remount,bind,ro "$1"
user=$3 root=$1
shift 4
exec chroot --userspec="$user" "$root" "$@"`
	s := start(t, exec.Command("unshare", append(append([]string{"--mount", "sh", "-c", script, "sh", root, tasks, user, volume}, entry...), args...)...))
	s.put("later", `{"kind": "k", "delay": "1h"}`)
	s.put("now", `{"kind": "k"}`)
	if key := <-called; key != "now" {
		t.Errorf("the receiver was called for %q", key)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	check(t, err)
	uid, _, _ := strings.Cut(user, ":")
	if got := strings.Fields(one(t, string(status), `^Uid:(.*)$`)); got[0] != uid || got[1] != uid {
		t.Errorf("the process runs as %q, want %s", got, uid)
	}
	check(t, s.cmd.Process.Signal(syscall.SIGTERM))
	check(t, s.cmd.Wait())
	info, err := os.Stat(filepath.Join(tasks, strings.TrimPrefix(args[1], volume)))
	check(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the mode of the store is %v", info.Mode())
	}
	var files []string
	check(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, strings.TrimPrefix(path, root))
		}
		return err
	}))
	if got := strings.Join(files, " "); got != "/etc/timewheel/serve.json /timewheel" {
		t.Errorf("the root file system has %s", got)
	}
}

// systemd accepts the unit without a warning, and its exposure is at most 2 of 10.
func TestUnit_isValidAndHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	const installed = "/usr/local/bin/timewheel"
	text := read(t, "timewheel.service")
	one(t, text, `^ExecStart=`+installed+` (serve -config /etc/timewheel/serve.json -dir /var/lib/timewheel/tasks)$`)
	name := filepath.Join(t.TempDir(), "timewheel.service")
	for _, c := range []struct {
		unit  string
		fails bool
	}{{text, false}, {strings.Replace(text, "UMask=", "UMusk=", 1), true}} {
		check(t, os.WriteFile(name, []byte(strings.ReplaceAll(c.unit, installed, "/bin/true")), 0o644))
		out, err := exec.Command("systemd-analyze", "verify", name).CombinedOutput()
		if failed := err != nil || len(out) > 0; failed != c.fails {
			t.Errorf("verify: %v: %s", err, out)
		}
	}
	check(t, os.WriteFile(name, []byte(text), 0o644))
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", name).CombinedOutput()
	if bytes.Contains(out, []byte("unrecognized option")) {
		t.Skip("this systemd-analyze knows no score of a file")
	}
	if err != nil {
		t.Errorf("the exposure is over 2 of 10: %v: %s", err, out)
	}
}

// certify writes a certificate and its key.
func certify(t *testing.T, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	check(t, err)
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	check(t, err)
	check(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	check(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes}), 0o600))
}
