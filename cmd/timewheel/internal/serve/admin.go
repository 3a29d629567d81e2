// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable/backup"
)

// Admin configures the address for operators.
type Admin struct {
	Listen      string      `json:"listen"`
	TLS         *TLS        `json:"tls"`
	Insecure    bool        `json:"insecure"`            // Listen may be beyond loopback without TLS or without tokens
	Tokens      []*Operator `json:"tokens" reload:"yes"` // if there are none, everyone who reaches it sees keys and errors
	Hosts       []string    `json:"hosts"`               // names under which the page may be reached
	MetricsOnly bool        `json:"metrics_only"`        // metrics and health, and no page
	Control     bool        `json:"control"`             // the page may change tasks
	Backup      bool        `json:"backup"`              // /backup copies the store, with all payloads
	Operate     bool        `json:"operate"`             // /command runs the commands of operators
}

// An Operator is a person or a program with a token.
type Operator struct {
	Name   string   `json:"name"`
	Token  Secret   `json:"token"`
	Rights []string `json:"rights"`

	Prefixes []string `json:"prefixes"` // of the keys that the right operate is for; none or "" is all
	Kinds    []string `json:"kinds"`    // that the right operate is for; none or "*" is all

	sum [sha256.Size]byte // of the token
}

// The rights of an operator. No token is needed for the health of the service.
const (
	mayScrape  = "metrics"
	maySee     = "page"
	mayControl = "control" // changes on the page
	mayCopy    = "backup"
	mayOperate = "operate" // commands
)

func (k *checker) admin(a *Admin) {
	a.Listen = k.listen("admin.listen", a.Listen, a.TLS, a.Insecure)
	names := make(map[string]bool)
	served := map[string]bool{mayScrape: true, maySee: !a.MetricsOnly, mayControl: a.Control, mayCopy: a.Backup, mayOperate: a.Operate}
	for i, o := range a.Tokens {
		k.operator(fmt.Sprintf("admin.tokens[%d]", i), o, names, served)
	}
	for i, name := range a.Hosts {
		if name == "" || name != "*" && strings.ContainsAny(name, "/: *") {
			k.wrong(fmt.Sprintf("admin.hosts[%d]", i), "%q is not the name of a host without a port", name)
		}
	}
	away := a.Listen != "" && !isLocal(a.Listen)
	if away && len(a.Tokens) == 0 && !a.Insecure && k.knows("admin.tokens", "admin.insecure") {
		k.wrong("admin.insecure", "anyone who reaches %s sees keys and errors; give tls and tokens, or allow it with true", a.Listen)
	}
	for _, one := range []struct {
		name string
		set  bool
	}{{"control", a.Control}, {"backup", a.Backup}, {"operate", a.Operate}} {
		if one.set && away && (a.TLS == nil || len(a.Tokens) == 0) && k.knows("admin.tls", "admin.tokens") {
			k.wrong("admin."+one.name, "it is allowed only with tls and tokens, on loopback and on a Unix socket, and listen is %s",
				a.Listen)
		}
		if one.set && a.MetricsOnly {
			k.wrong("admin."+one.name, "metrics_only leaves it out")
		}
	}
}

func (k *checker) operator(field string, o *Operator, names, served map[string]bool) {
	if o == nil {
		k.wrong(field, "null is no token")
		return
	}
	if o.Name == "" || strings.Contains(o.Name, ":") {
		k.wrong(field+".name", "%q is empty, or has a colon", o.Name) // it is the user name of a browser
	}
	k.holder(field, o.Name, names, &o.Token, o.Rights, mayScrape, maySee, mayControl, mayCopy, mayOperate)
	for i, right := range o.Rights {
		if is, known := served[right]; known && !is && k.knows("admin."+right) {
			k.wrong(fmt.Sprintf("%s.rights[%d]", field, i), "%q has no effect without %q: true, or with metrics_only", right, right)
		}
	}
	k.limits(field, o)
	o.sum = sha256.Sum256([]byte(o.Token))
}

// operatorOf returns the operator of a request, or nil if the token is unknown. A browser sends the token as the password
// of the name. It takes the same time for all unknown tokens of the same length.
func (srv *Server) operatorOf(r *http.Request) (found *Operator) {
	name, token, isBasic := r.BasicAuth()
	if !isBasic {
		token = bearer(r)
	}
	sum := sha256.Sum256([]byte(token))
	for _, o := range *srv.operators.Load() {
		if subtle.ConstantTimeCompare(sum[:], o.sum[:]) == 1 && (!isBasic || o.Name == name) {
			found = o
		}
	}
	return found
}

// allow returns the operator of a request, or an error unless it has the right. Without tokens, everyone has all rights,
// and no name.
func (srv *Server) allow(r *http.Request, right string) (*Operator, error) {
	if len(*srv.operators.Load()) == 0 {
		return new(Operator), nil
	}
	o := srv.operatorOf(r)
	if o == nil || !slices.Contains(o.Rights, right) {
		return nil, fmt.Errorf("the token has no right to %s", right)
	}
	return o, nil
}

// may returns a function that returns an error unless the operator of a request has the right.
func (srv *Server) may(right string) func(*http.Request) error {
	return func(r *http.Request) error {
		_, err := srv.allow(r, right)
		return err
	}
}

// adminHandler returns the handler of the operators' address.
func (srv *Server) adminHandler(
	a *Admin, registry *prometheus.Registry, source dashboard.Source, commander Commander,
) http.Handler {
	opts := []dashboard.Option{dashboard.AllowHosts(a.Hosts...)}
	if a.Control {
		opts = append(opts, dashboard.AllowControl(srv.may(mayControl)))
	}
	mux := http.NewServeMux()
	if !a.MetricsOnly {
		mux.Handle("/", srv.with(maySee, mostSmall, dashboard.Handler([]dashboard.Source{source}, opts...)))
	}
	mux.Handle("GET /metrics", srv.with(mayScrape, mostSmall, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { srv.answer(w, r, srv.s.Err()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { srv.answer(w, r, srv.ready()) })
	if a.Backup {
		mux.Handle("/backup", srv.with(mayCopy, mostSmall, backup.Handler(srv.s, srv.may(mayCopy))))
	}
	if a.Operate && commander != nil {
		mux.Handle("POST "+CommandPath, srv.with(mayOperate, mostBody, srv.command(commander)))
	}
	return begin(recovered(srv.log, answerProblem, hasten(onHosts(a.Hosts, mux))))
}

// errStopping is not a failure, so everyone may see it.
var errStopping = errors.New("the service is stopping")

// answer answers a question about the health. It shows a failure only to an operator with a right to the page.
func (srv *Server) answer(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case err == nil:
		_, _ = w.Write([]byte("ok\n"))
	case !errors.Is(err, errStopping) && srv.may(maySee)(r) != nil:
		http.Error(w, "failed; the log and the page say why", http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// ready returns an error if callers should use another process.
func (srv *Server) ready() error {
	if srv.ending.Load() {
		return errStopping
	}
	if node := srv.s.Stats().Node; node != nil && node.Away {
		return errors.New("the database does not answer")
	}
	return srv.s.Err()
}
