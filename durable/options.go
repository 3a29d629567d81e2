// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/sirupsen/logrus"
)

// An Option configures a scheduler. See [New].
type Option func(*config) error

// config holds the values that the options set.
type config struct {
	node.Config
	observers  []func(Attempt)
	middleware []Middleware
}

// slots is the number of slots of the wheel. With the default tick, one circle takes ten seconds.
const slots = 1024

func newConfig(opts []Option) (config, error) {
	c := config{Config: node.Config{
		Tick: time.Millisecond, PoolSize: 1024, CatchUp: 10_000,
		Log: logrus.StandardLogger(), Name: nodeName(), Lease: 5 * time.Second, Draw: rand.Float64,
		Version: buildVersion(), Made: time.Now(),
	}}
	for _, o := range opts {
		if o == nil {
			return c, errors.New("durable: nil option")
		}
		if err := o(&c); err != nil {
			return c, err
		}
	}
	c.CatchUp = min(c.CatchUp, node.MostCatchUp)
	return c, nil
}

// WithTick sets the wheel's tick. The default is 1 ms. d must be positive.
func WithTick(d time.Duration) Option {
	return func(c *config) error {
		c.Tick = d
		return positive("tick", d)
	}
}

// WithPoolSize sets how many handlers may run at once. The default is 1,024. n must be positive.
func WithPoolSize(n int) Option {
	return func(c *config) error {
		c.PoolSize = n
		return positive("pool size", n)
	}
}

// WithCatchUp sets how many overdue tasks may start per second after downtime. The default is 10,000, and the maximum
// is a million. This limit protects the systems that handlers call. It does not need to protect tasks that fall due
// now: they always go first, because overdue tasks run only on spare workers. n must be positive.
func WithCatchUp(n int) Option {
	return func(c *config) error {
		c.CatchUp = n
		return positive("catch-up rate", n)
	}
}

// WithNodeName sets the name by which operators recognize the node. The default consists of the host name and the
// process ID. The name is UTF-8 text of 1 to MaxNodeName bytes without a zero byte, and need not be unique. On
// an engine of one process the name is only displayed.
func WithNodeName(name string) Option {
	return func(c *config) error {
		switch {
		case name == "" || len(name) > MaxNodeName:
			return fmt.Errorf("durable: name of the node has %d bytes; 1 to %d are allowed", len(name), MaxNodeName)
		case !utf8.ValidString(name) || strings.Contains(name, "\x00"):
			return fmt.Errorf("durable: name of the node %q is not UTF-8 text without a zero byte", name)
		}
		c.Name = name
		return nil
	}
}

// MaxNodeName is the maximum size of a node's name, in bytes. See [WithNodeName].
const MaxNodeName = 200

func nodeName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	return defaultName(host, os.Getpid())
}

// defaultName returns the name of a process on a host, as WithNodeName allows it.
func defaultName(host string, pid int) string {
	id := "-" + strconv.Itoa(pid)
	host = strings.ReplaceAll(host, "\x00", "")
	return strings.ToValidUTF8(host[:min(len(host), MaxNodeName-len(id))], "") + id
}

// WithLease sets the node's lease: how long the node may be unreachable before other nodes take over its tasks. The
// default is 5 s. A node renews its lease every quarter of this time. A shorter lease detects a dead node sooner, but
// requires more engine calls and causes needless takeovers when the engine or the network is slow. Other nodes notice a
// new member only at their next renewal. If it dies before then, they take longer to detect its death. d must be at
// least 100 ms. On an engine of one process the lease has no end.
func WithLease(d time.Duration) Option {
	return func(c *config) error {
		if d < leastLease {
			return fmt.Errorf("durable: lease %v is less than %v", d, leastLease)
		}
		c.Lease = d
		return nil
	}
}

const leastLease = 100 * time.Millisecond

func positive[N ~int | ~int64](what string, n N) error {
	if n <= 0 {
		return fmt.Errorf("durable: %s %v is not positive", what, n)
	}
	return nil
}
