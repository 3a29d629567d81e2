// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed581295f1/timewheel/durable"
)

// reload rereads the configuration, and applies the fields with the tag reload. If anything in the file is wrong, it
// changes nothing.
func (srv *Server) reload() {
	next, err := srv.cfg.reread()
	if err != nil {
		srv.log.Error("the configuration cannot be read again, so everything stays as it was", "error", err)
		return
	}
	for name, was := range srv.lowered {
		if of := next.Kinds[name]; of != nil && of.Concurrency == was {
			of.Concurrency = srv.cfg.Kinds[name].Concurrency
		}
	}
	restart := srv.cfg.needsRestart(next)
	has := func(field string) bool { return slices.Contains(restart, field) }
	if !has("tls") && next.TLS != nil {
		srv.cfg.TLS.pair.Store(next.TLS.pair.Load())
	}
	if a := srv.cfg.Admin; a != nil && !has("admin") {
		if !has("admin.tls") && a.TLS != nil {
			a.TLS.pair.Store(next.Admin.TLS.pair.Load())
		}
		if !has("admin.tokens") {
			srv.operators.Store(&next.Admin.Tokens)
		}
	}
	if !has("tokens") {
		srv.callers.setTokens(next.Tokens)
	}
	for name, c := range srv.webhooks {
		// The headers of another receiver may hold its password, so this one does not get them.
		if field := "kinds." + name; !has(field) && !has(field+".elsewhere") && !has(field+".url") {
			c.use(next.Kinds[name], name, srv.answers)
		}
	}
	for _, c := range srv.certificates() {
		srv.log.Info("a certificate is read again", "field", c.field, "expires", c.expires)
	}
	if len(restart) > 0 {
		srv.log.Warn("some changes of the configuration need a restart", "fields", strings.Join(restart, " "))
	}
	srv.log.Info("the configuration is read again")
}

// needsRestart returns the fields that differ in the other configuration and that only a restart changes.
func (c *Config) needsRestart(other *Config) []string {
	restart := differences("", reflect.ValueOf(*c), reflect.ValueOf(*other))
	if (len(c.Tokens) == 0) != (len(other.Tokens) == 0) {
		restart = append(restart, "tokens") // without tokens the service has other addresses, and other checks
	}
	if a, b := c.Admin, other.Admin; a != nil && b != nil && (len(a.Tokens) == 0) != (len(b.Tokens) == 0) {
		restart = append(restart, "admin.tokens")
	}
	slices.Sort(restart)
	return restart
}

// differences returns the fields that differ, except those with the tag reload.
func differences(path string, a, b reflect.Value) (all []string) {
	switch {
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		return differences(path, a.Elem(), b.Elem())
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			f := a.Type().Field(i)
			if f.IsExported() && f.Tag.Get("reload") == "" {
				all = append(all, differences(strings.TrimPrefix(path+"."+f.Tag.Get("json"), "."), a.Field(i), b.Field(i))...)
			}
		}
		return all
	case a.Kind() == reflect.Map:
		names := make(map[string]bool)
		for _, name := range slices.Concat(a.MapKeys(), b.MapKeys()) {
			names[name.String()] = true
		}
		for name := range names {
			field, key := path+"."+name, reflect.ValueOf(name)
			if x, y := a.MapIndex(key), b.MapIndex(key); x.IsValid() && y.IsValid() {
				all = append(all, differences(field, x, y)...)
			} else {
				all = append(all, field)
			}
		}
		return all
	case !reflect.DeepEqual(a.Interface(), b.Interface()):
		return []string{path}
	}
	return nil
}

// A current holds the webhook of a kind as last configured. Its method run is the handler of the kind.
type current struct{ atomic.Pointer[webhook] }

func (c *current) run(ctx context.Context, run durable.Run) error { return c.Load().run(ctx, run) }

// use takes the fields of the kind that a reload changes. It does not disturb requests in progress. The connections so far
// are not used again, and close themselves.
func (c *current) use(next *Kind, name string, answers *prometheus.CounterVec) {
	was := c.Load()
	of := *was.of
	of.Secrets, of.headers = next.Secrets, next.headers
	of.authority, of.ClientCertificate = next.authority, next.ClientCertificate
	c.Store(newWebhook(name, &of, answers, was.breaker))
}
