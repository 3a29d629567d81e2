// SPDX-License-Identifier: MIT

package serve

import (
	"maps"
	"slices"
)

// readCertificates rereads the certificates, for new connections. A certificate that cannot be read is not replaced.
func (srv *Server) readCertificates() {
	fields := map[string]*TLS{"tls": srv.cfg.TLS}
	if a := srv.cfg.Admin; a != nil {
		fields["admin.tls"] = a.TLS
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		t := fields[field]
		if t == nil {
			srv.log.Info("there is no certificate to be read again", "field", field)
		} else if err := t.read(); err != nil {
			srv.log.Error("a certificate cannot be read again, so the old one stays", "field", field, "error", err)
		} else {
			srv.log.Info("a certificate is read again", "field", field, "expires", t.pair.Load().Leaf.NotAfter)
		}
	}
}
