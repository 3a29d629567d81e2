// SPDX-License-Identifier: MIT

//go:build !unix

package pgtest

// A Server is a PostgreSQL server. None can be started on this system.
type Server struct{}

// Start returns ErrNotInstalled.
func Start(...string) (*Server, error) { return nil, ErrNotInstalled }

// StartIn returns ErrNotInstalled.
func StartIn(string, ...string) (*Server, error) { return nil, ErrNotInstalled }

// Standby returns ErrNotInstalled.
func (s *Server) Standby(...string) (*Server, error) { return nil, ErrNotInstalled }

// URL and the other methods are never called, because there is no server.
func (s *Server) URL() string       { return url(0, "") }
func (s *Server) Addr() string      { return "" }
func (s *Server) PID() (int, error) { return 0, ErrNotInstalled }
func (s *Server) Restart() error    { return ErrNotInstalled }
func (s *Server) Stop(Stop) error   { return ErrNotInstalled }
func (s *Server) Pause() error      { return ErrNotInstalled }
func (s *Server) Resume() error     { return ErrNotInstalled }
func (s *Server) Promote() error    { return ErrNotInstalled }
func (s *Server) Kill() error       { return ErrNotInstalled }
func (s *Server) Close() error      { return nil }

// A Pooler is a PgBouncer process. None can be started on this system.
type Pooler struct{}

// Pooler returns ErrNotInstalled.
func (s *Server) Pooler(...string) (*Pooler, error) { return nil, ErrNotInstalled }

func (p *Pooler) URL() string              { return url(0, "") }
func (p *Pooler) Addr() string             { return "" }
func (p *Pooler) Restart() error           { return ErrNotInstalled }
func (p *Pooler) Kill() error              { return ErrNotInstalled }
func (p *Pooler) Version() (string, error) { return "", ErrNotInstalled }
func (p *Pooler) Close() error             { return nil }
