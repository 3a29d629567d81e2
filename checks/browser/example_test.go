// SPDX-License-Identifier: MIT

package browser

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Examples/dashboard, as a user starts it, looked at in light, dark and narrow. The pictures stay in the
// folder screenshots. SECONDS_SHOWN is how much of the history they are to show.
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
	warm.within(limit+time.Duration(seconds)*time.Second, fmt.Sprintf(`page.history.length > %d`, seconds))
	for _, c := range []struct {
		name   string
		width  int64
		scheme string
	}{{"light", 1180, "light"}, {"dark", 1180, "dark"}, {"narrow", 390, "light"}} {
		p := open(t, browser, address, c.width, c.scheme)
		p.until(`page.history.length > 1 && document.querySelectorAll("#next button").length === 8`)
		p.lookUp("report-takings")
		p.until(`!document.querySelector("#task").hidden`)
		js[any](p, `document.activeElement.blur()`)
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

// startExample starts the program, returns the address that it prints, and in the end interrupts it.
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
