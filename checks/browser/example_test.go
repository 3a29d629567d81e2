// SPDX-License-Identifier: MIT

package browser

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// The program examples/dashboard, started as a user would start it, shown in light, dark and narrow, first without
// trouble and then with it. The pictures are kept in the folder screenshots. SECONDS_SHOWN is how much of the history
// they show.
func TestExample_inLightDarkAndNarrow(t *testing.T) {
	browser := chrome(t)
	address := startExample(t)
	seconds, err := strconv.Atoi(cmp.Or(os.Getenv("SECONDS_SHOWN"), "3"))
	if err != nil {
		t.Fatal(err)
	}
	dir := "screenshots"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	warm := open(t, browser, address, 1180, "light")
	warm.within(limit+time.Duration(seconds)*time.Second, fmt.Sprintf(`page.live && performance.now() > %d * 1000`, seconds))
	made := false
	for _, c := range []struct {
		name    string
		width   int64
		scheme  string
		view    string
		trouble bool
	}{
		{"light", 1180, "light", "#wheel=orders", false},
		{"dark", 1180, "dark", "#wheel=orders", true},
		{"narrow", 390, "light", "#wheel=orders", true},
		{"overview", 390, "light", "", true},
		{"task", 800, "light", "#wheel=orders&key=shelf-001", true},
		{"scheduler", 1180, "light", "#scheduler=payments", true},
		{"scheduler-dark", 1180, "dark", "#scheduler=payments", true},
		{"scheduler-task", 800, "light", "#scheduler=payments&key=capture:01", true},
	} {
		if c.trouble && !made {
			made = true
			makeTrouble(t, address, "panic")
			makeTrouble(t, address, "jam")
			makeTrouble(t, address, "fail")
			makeTrouble(t, address, "forget")
			warm.do(chromedp.Navigate(address + "#wheel=orders"))
			warm.within(limit, `page.state?.stats.oldest_wait > 5`)
		}
		p := open(t, browser, address+c.view, c.width, c.scheme)
		p.until(`page.live && (page.view !== "wheel" || document.querySelectorAll("#next a").length === 8)`)
		if c.view == "#scheduler=payments" {
			p.until(`page.tasks?.stats.parked > 0 && page.tasks.health.findings.length > 1 && document.querySelector("#failures .many")`)
		}
		if c.view == "#wheel=orders" {
			for found := false; !found; { // on a slow machine the search may be cut and find fewer than three, or none
				p.lookUp("report-")
				p.until(`document.querySelector("#found-tasks a") || /took too long/.test($("look-message").textContent)`)
				found = js[bool](p, `document.querySelector("#found-tasks a") !== null`)
			}
			js[any](p, `document.activeElement.blur()`)
		}
		picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.name+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
		p.quiet(address)
	}

	response, err := http.Get(address + "metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(metrics), `timewheel_runs_started_total{wheel="orders"}`) ||
		!strings.Contains(string(metrics), `timewheel_run_wait_seconds_count{wheel="sessions"}`) {
		t.Errorf("the metrics are %v\n%s", err, metrics)
	}
}

// makeTrouble presses a button of the example.
func makeTrouble(t *testing.T, address, what string) {
	t.Helper()
	response, err := http.PostForm(address+"trouble/", url.Values{"make": {what}})
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("trouble %s is answered with %s", what, response.Status)
	}
}

// startExample starts the program, returns the address that it prints, and interrupts it at the end of the test.
func startExample(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "dashboard")
	build := exec.Command("go", "build", "-o", program, "./dashboard")
	build.Dir = filepath.Join("..", "..", "examples")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "-addr", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the example ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.Fields(line)
	return address[len(address)-1]
}
