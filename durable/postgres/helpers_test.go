// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// shared is the server for all tests that do not stop it.
var shared struct {
	once sync.Once
	*pgtest.Server
	err error
}

func TestMain(m *testing.M) {
	if text := os.Getenv(processEnv); text != "" {
		var p process
		err := json.Unmarshal([]byte(text), &p)
		if err == nil {
			err = p.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if shared.Server != nil {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// start starts a server, or skips the test where none is installed, unless POSTGRES_REQUIRED is set.
func start(settings ...string) (*pgtest.Server, error) { return pgtest.Start(settings...) }

func check(t testing.TB, err error) {
	t.Helper()
	pgtest.Must(t, err)
}

// server returns the URL of the shared server. POSTGRES_URL names another, for the suites.
func server(t testing.TB) string {
	t.Helper()
	if url := os.Getenv("POSTGRES_URL"); url != "" {
		return url
	}
	shared.once.Do(func() { shared.Server, shared.err = start() })
	check(t, shared.err)
	return shared.URL()
}

var schemas atomic.Int64

// schema returns an option with a schema name that no other test uses.
func schema() postgres.Option {
	return postgres.WithSchema(fmt.Sprintf(`Test "%d"'s`, schemas.Add(1)))
}

// open opens an engine on the shared server, in a new schema unless the options name one.
func open(t testing.TB, opts ...postgres.Option) *postgres.Engine {
	t.Helper()
	e, err := postgres.Open(t.Context(), server(t), append([]postgres.Option{schema()}, opts...)...)
	check(t, err)
	t.Cleanup(e.Close)
	return e
}

// connect returns a connection to the server.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	check(t, err)
}

// put returns a write that puts a record.
func put(key string, due int64, cond engine.Condition) engine.Write {
	return engine.Write{Record: engine.Record{Key: key, Due: due, Data: []byte("data")}, Kind: "kind", If: cond}
}

func add(key string, due int64) engine.Write { return put(key, due, engine.IfAbsent) }

func remove(key string) engine.Write {
	return engine.Write{Record: engine.Record{Key: key}, If: engine.IfPresent}
}

// commit commits one batch, which must succeed.
func commit(t testing.TB, e engine.Engine, by engine.MemberID, writes ...engine.Write) []engine.Written {
	t.Helper()
	results, err := e.Commit(t.Context(), by, []engine.Batch{writes})
	check(t, err)
	if len(results[0].Written) != len(writes) {
		t.Fatalf("the commit is not done: %+v", results[0])
	}
	return results[0].Written
}

// note returns a write that puts a note.
func note(name, data string) engine.Write {
	return engine.Write{Record: engine.Record{Key: name, Data: []byte(data)}, Note: true, If: engine.Always}
}

// claim claims tasks of the kind with due times from 1 to until.
func claim(t testing.TB, e engine.Engine, by engine.MemberID, until int64, most int) []engine.Stored {
	t.Helper()
	c, err := e.Claim(t.Context(), engine.ClaimRequest{By: by, Kinds: []string{"kind"}, Until: until, Most: most,
		Readable: math.MaxUint8})
	check(t, err)
	return c.Tasks
}

// length returns how many tasks the engine has.
func length(t testing.TB, e engine.Engine) (n int) {
	t.Helper()
	kinds, err := engine.Count(t.Context(), e)
	check(t, err)
	for _, k := range kinds {
		n += k.Tasks
	}
	return n
}

// await calls the function until it returns nil.
func await(t testing.TB, f func() error) {
	t.Helper()
	err := f()
	for deadline := time.Now().Add(time.Minute); err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatalf("still after a minute: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A sabotage is a removed detail of the engine, or none, and whether that breaks a promise.
type sabotage struct {
	without string
	found   bool
}

// eachFound counts the breaches with each detail removed. A sabotage that breaks a promise must show in one of the
// tries.
func eachFound(t *testing.T, tries int, what string, all []sabotage, count func(t *testing.T, without string) int) {
	t.Helper()
	for _, s := range all {
		t.Run(s.without, func(t *testing.T) {
			for range tries {
				n := count(t, s.without)
				if n > 0 && !s.found {
					t.Errorf("there were %d %s", n, what)
				}
				if n > 0 || !s.found {
					t.Logf("there were %d %s", n, what)
					return
				}
			}
			t.Error("the test does not find it")
		})
	}
}
