// SPDX-License-Identifier: MIT

package orders

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRun_http_showsTheWheelWhileItWorks(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var stdout bytes.Buffer
	stderr, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, nil, []string{"-generate", "20000", "-speed", "60", "-http", "127.0.0.1:0"}, nil, &stdout, w)
		w.Close()
	}()
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, stderr)
	address := strings.TrimSpace(strings.TrimPrefix(line, "the wheel: "))
	if _, err := http.Get(address); err != nil {
		t.Fatal(err)
	}
	pending := 0
	for end := time.Now().Add(time.Minute); pending == 0 && time.Now().Before(end); {
		response, err := http.Get(address + "api/wheel")
		if err != nil {
			t.Fatal(err)
		}
		var state struct{ Stats struct{ Pending int } }
		err = json.NewDecoder(response.Body).Decode(&state)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		pending = state.Stats.Pending
	}
	if pending == 0 {
		t.Error("no order is seen")
	}
	events, err := http.Get(address + "api/events") // an open page does not keep the program from ending
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	interrupt()
	if status := <-ended; status != exitFine || !strings.Contains(stdout.String(), "Everything balances.") {
		t.Errorf("exit status %d\n%s", status, &stdout)
	}
	if _, err := http.Get(address); err == nil {
		t.Error("the page is there when the program has ended")
	}
}

func TestRun_http_addressThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o := program(t.Context(), nil, "-generate", "1", "-http", taken.Addr().String())
	if o.status != exitUsage || !strings.HasPrefix(o.stderr, "orders: -http: listen") {
		t.Errorf("got %+v", o)
	}
}
