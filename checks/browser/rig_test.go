// SPDX-License-Identifier: MIT

package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// limit is how long a test waits for something to appear.
const limit = 30 * time.Second

// chrome starts Chromium with the additional options, and ends it with the test. Its first tab is not used.
func chrome(t *testing.T, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	path := os.Getenv("CHROMIUM")
	if path == "" {
		var err error
		if path, err = exec.LookPath("chromium"); err != nil {
			t.Skip("there is no chromium here; make test-browser installs it")
		}
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(10*limit)), more...)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// A tab is a page in the browser. It records the messages in the console, and the requested hosts.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex // protects all below
	problems []string
	asked    []string
}

// open opens a page with the given width, in the light or the dark scheme.
func open(t *testing.T, browser context.Context, address string, width int64, scheme string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 10*limit)
	t.Cleanup(cancel)
	p := &tab{T: t, ctx: ctx}
	p.do(chromedp.Navigate("about:blank"))
	if err := chromedp.Listen(ctx, p.heard); err != nil {
		t.Fatal(err)
	}
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, runtime.Enable, cdp.Empty{})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	p.do(chromedp.EmulateViewport(width, 900), chromedp.Navigate(address))
	return p
}

func (p *tab) heard(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, fmt.Sprint("exception: ", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		p.problems = append(p.problems, fmt.Sprint("console: ", e.Type, e.Args))
	case *log.EventEntryAdded:
		p.problems = append(p.problems, fmt.Sprint("log: ", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		p.asked = append(p.asked, e.Request.URL)
	}
}

// call sends a command of the protocol to the browser.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) {
	p.Helper()
	if _, err := chromedp.Call(p.ctx, command, params); err != nil {
		p.Fatal(err)
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.Fatal(err)
	}
}

// js returns the value of the expression in the page.
func js[T any](p *tab, expression string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for the expression to be true.
func (p *tab) until(expression string) {
	p.Helper()
	p.within(limit, expression)
}

func (p *tab) within(limit time.Duration, expression string) {
	p.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		is, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && is { // an error may come from a page that is navigating
			return
		}
		if time.Now().After(end) {
			if err != nil {
				p.Fatalf("%s: %v", expression, err)
			}
			p.Fatalf("it did not come to %s\nthe page is\n%s", expression, js[string](p, "document.body.innerText"))
		}
	}
}

// quiet fails the test if the page logged an error, or sent a request to another host.
func (p *tab) quiet(address string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.Error(problem)
	}
	if len(p.asked) < 5 {
		p.Errorf("the page asked only for %q", p.asked)
	}
	for _, asked := range p.asked {
		if !strings.HasPrefix(asked, address) && asked != "about:blank" {
			p.Errorf("the page asked for %s", asked)
		}
	}
}
