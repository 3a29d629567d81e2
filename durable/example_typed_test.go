// SPDX-License-Identifier: MIT

package durable_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// A Hold is the payload of a task that looks at an order again.
type Hold struct{ Items int }

// A typed kind: the compiler checks the payloads. Several tasks are added at once with AddTask.
func ExampleKindOf() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine()) // or a store of package durable/pebble
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan bool)
	holds, err := durable.KindOf(s, "hold", func(_ context.Context, run durable.Run, h Hold) error {
		fmt.Printf("%s: %d items\n", run.Key, h.Items)
		done <- true
		return nil
	})
	if err := errors.Join(err, s.Start()); err != nil {
		log.Fatal(err)
	}

	if err := holds.Add(ctx, "order:1", Hold{3}, durable.In(10*time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	<-done

	var tasks []durable.Task
	for _, key := range []string{"order:2", "order:3"} {
		task, err := holds.Task(key, Hold{2}, durable.In(30*time.Minute))
		if err != nil {
			log.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	if err := s.AddTask(ctx, tasks...); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Exist(ctx, "order:3"))
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order:1: 3 items
	// true <nil>
}

// A web server adds tasks, and another process runs them. The server declares the kind: it has no handler. Hold is in
// its second version. Without it, the other process would take the payload for one of the first.
func ExampleKindOf_withoutHandler() {
	ctx := context.Background()
	engine := memory.New().Shared() // or an engine of package durable/postgres
	server, err := durable.Connect(ctx, engine)
	if err != nil {
		log.Fatal(err)
	}
	holds, err := durable.KindOf[Hold](server, "hold", nil, durable.WithPayloadVersion(2, nil))
	if err != nil {
		log.Fatal(err)
	}
	if err := holds.Add(ctx, "order:1", Hold{3}, durable.In(30*time.Minute)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(server.Exist(ctx, "order:1"))
	if err := server.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: true <nil>
}

// While the shop is closed, the handler postpones its run, for at most an hour. The attempt does not count as failed.
func ExampleSnooze() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	opens := time.Now().Add(50 * time.Millisecond)
	done := make(chan bool)
	err = s.Handle("call", func(_ context.Context, run durable.Run) error {
		if left := time.Until(opens); left > 0 && run.Lateness() < time.Hour {
			fmt.Println("closed")
			return durable.Snooze(left)
		}
		fmt.Println("attempt", run.Attempt)
		close(done)
		return nil
	})
	if err := errors.Join(err, s.Start()); err != nil {
		log.Fatal(err)
	}
	if err := s.AddTask(ctx, durable.Task{Key: "call:ada", Kind: "call"}); err != nil {
		log.Fatal(err)
	}
	<-done
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// closed
	// attempt 1
}

// A one-time code is useless after a minute. After an outage it is dropped, and not sent late.
func ExampleTask_expires() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	err = s.Handle("code", func(_ context.Context, run durable.Run) error {
		fmt.Println("sent:", run.Key)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	err = s.AddTask(ctx,
		durable.Task{Key: "code:ada", Kind: "code", At: time.Now().Add(-time.Hour), Expires: time.Minute},
		durable.Task{Key: "code:bob", Kind: "code", Delay: 10 * time.Millisecond, Expires: time.Minute})
	if err := errors.Join(err, s.Start()); err != nil {
		log.Fatal(err)
	}
	for s.Len() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("expired:", s.Stats().Expired)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// sent: code:bob
	// expired: 1
}

// A middleware sees each attempt of each kind.
func ExampleWithMiddleware() {
	ctx := context.Background()
	var logs durable.Middleware = func(next durable.Handler) durable.Handler {
		return func(ctx context.Context, run durable.Run) error {
			err := next(ctx, run)
			fmt.Printf("%s %q, attempt %d: %v\n", run.Kind, run.Key, run.Attempt, err)
			return err
		}
	}
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithMiddleware(logs))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan bool)
	err = s.Handle("mail", func(_ context.Context, run durable.Run) error {
		if run.Attempt == 1 {
			return errors.New("the server is busy")
		}
		close(done)
		return nil
	}, durable.WithRetry(3, time.Millisecond, time.Millisecond))
	if err := errors.Join(err, s.Start(), s.AddTask(ctx, durable.Task{Key: "ada", Kind: "mail"})); err != nil {
		log.Fatal(err)
	}
	<-done
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// mail "ada", attempt 1: the server is busy
	// mail "ada", attempt 2: <nil>
}

// A Vault encrypts payloads with AES-GCM. The first four bytes of a sealed payload are the number of its key, so that
// keys can rotate: new payloads have the newest key, and older ones still open. A program adds the keys in the same
// order after each start.
type Vault struct {
	mu   sync.RWMutex // handlers run while a key is added
	keys []cipher.AEAD
}

// Add adds a key, which becomes the newest.
func (v *Vault) Add(key []byte) error {
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys = append(v.keys, gcm)
	return nil
}

// Seal encrypts the payload of the task, and binds it to the key of the task: it opens in no other. It is a
// TaskOption.
func (v *Vault) Seal(task *durable.Task) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	newest := len(v.keys) - 1
	number := binary.BigEndian.AppendUint32(nil, uint32(newest))
	task.Payload = v.keys[newest].Seal(number, nil, task.Payload, []byte(task.Key))
}

// key returns the key that has sealed the payload, and the rest of the payload. It returns nil if there is none.
func (v *Vault) key(payload []byte) (key cipher.AEAD, sealed []byte) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if len(payload) < 4 {
		return nil, nil
	}
	if number := binary.BigEndian.Uint32(payload); int64(number) < int64(len(v.keys)) {
		return v.keys[number], payload[4:]
	}
	return nil, nil
}

// Open is a middleware that decrypts the payloads. One that does not open parks its task.
func (v *Vault) Open(next durable.Handler) durable.Handler {
	return func(ctx context.Context, run durable.Run) error {
		key, sealed := v.key(run.Payload)
		if key == nil {
			return durable.Park(errors.New("the key of the payload is unknown"))
		}
		var err error
		if run.Payload, err = key.Open(nil, nil, sealed, []byte(run.Key)); err != nil {
			return durable.Park(fmt.Errorf("the payload does not open: %w", err))
		}
		return next(ctx, run)
	}
}

// Payloads are encrypted in the store. The key is rotated, and the older payload still opens.
func ExampleWithMiddleware_encryption() {
	ctx := context.Background()
	newKey := func() []byte { key := make([]byte, 32); _, _ = rand.Read(key); return key }
	var vault Vault
	if err := vault.Add(newKey()); err != nil {
		log.Fatal(err)
	}
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithMiddleware(vault.Open), durable.WithPoolSize(1))
	if err != nil {
		log.Fatal(err)
	}
	type card struct{ Number string }
	done := make(chan string)
	cards, err := durable.KindOf(s, "card", func(_ context.Context, _ durable.Run, c card) error {
		done <- c.Number
		return nil
	})
	if err := errors.Join(err, s.Start()); err != nil {
		log.Fatal(err)
	}

	err = cards.Add(ctx, "card:1", card{"4111 1111"}, durable.In(100*time.Millisecond), vault.Seal)
	if err := errors.Join(err, vault.Add(newKey())); err != nil {
		log.Fatal(err)
	}
	if err := cards.Add(ctx, "card:2", card{"5500 0000"}, durable.In(200*time.Millisecond), vault.Seal); err != nil {
		log.Fatal(err)
	}
	stored, _, err := s.Get(ctx, "card:2")
	fmt.Println(!bytes.Contains(stored.Payload, []byte("5500")), err)
	fmt.Println(<-done)
	fmt.Println(<-done)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true <nil>
	// 4111 1111
	// 5500 0000
}
