// SPDX-License-Identifier: MIT

package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// longest is the longest lease. Longer ones are cut to it.
const longest = 100 * 365 * 24 * time.Hour

// Join adds a member. See engine.Engine.
func (e *Engine) Join(ctx context.Context, name string, lease time.Duration,
) (id engine.MemberID, now int64, err error) {
	err = e.control.QueryRow(ctx, e.sql.join, text(name), int64(min(lease, longest))).Scan(&id, &now)
	return id, now, explain("join", err)
}

// Renew extends the member's lease, and reads the members after the commit. In one transaction, two members that renew
// at the same time might both miss the other's report. See engine.Engine.
func (e *Engine) Renew(ctx context.Context, by engine.MemberID, report []byte,
) (members []engine.Membership, now int64, err error) {
	if err := valid.Report(report); err != nil {
		return nil, 0, err
	}
	for range 2 {
		var renewed bool
		members, now, renewed, err = e.renew(ctx, by, report)
		switch {
		case err != nil:
			return nil, 0, explain("renew", err)
		case renewed:
			return members, now, nil
		case !slices.ContainsFunc(members, func(m engine.Membership) bool { return m.ID == by }):
			return nil, 0, gone(by)
		}
		// A concurrent renewal of the member has shortened its lease, because the server's clock was set back. A second
		// try finds the new row.
	}
	return nil, 0, fmt.Errorf("postgres: renew: member %d exists, but the server does not update its row", by)
}

// renew is one try of Renew.
func (e *Engine) renew(ctx context.Context, by engine.MemberID, report []byte,
) (members []engine.Membership, now int64, renewed bool, err error) {
	scanNow := func(row pgx.Row) error {
		err := row.Scan(&now)
		renewed = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	}
	var b *pgx.Batch
	if by == 0 {
		b = e.batch()
		b.Queue(e.sql.now).QueryRow(scanNow)
	} else {
		b = &pgx.Batch{}
		b.Queue("BEGIN")
		b.Queue(e.sql.renew, int64(by), report).QueryRow(scanNow)
		b.Queue("COMMIT")
	}
	b.Queue(e.sql.members).Query(func(rows pgx.Rows) (err error) {
		members, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m engine.Membership, err error) {
			err = row.Scan(&m.ID, &m.Name, &m.Lease, &m.Left, &m.Report)
			m.Left -= time.Duration(now) // the row has the time at which the lease expires
			return m, err
		})
		return err
	})
	err = e.control.SendBatch(ctx, b).Close()
	return members, now, renewed, err
}

func gone(id engine.MemberID) error {
	return fmt.Errorf("postgres: member %d: %w", id, engine.ErrMemberGone)
}

// Leave ends the member. Its tasks that another transaction has locked become free with a later Reap. See
// engine.Engine.
func (e *Engine) Leave(ctx context.Context, by engine.MemberID) error {
	_, err := e.end(ctx, e.batch(), e.sql.markLeft, int64(by))
	return explain("leave", err)
}

// Reap ends the members whose leases have expired. Their tasks that another transaction has locked become free with a
// later Reap. See engine.Engine.
func (e *Engine) Reap(ctx context.Context) (names []string, err error) {
	var any bool
	if err := e.control.QueryRow(ctx, e.sql.anythingDead).Scan(&any); err != nil || !any {
		return nil, explain("reap", err)
	}
	b := e.batch()
	b.Queue(e.sql.noticeServer)
	names, err = e.end(ctx, b, e.sql.markDead)
	return names, explain("reap", err)
}

// end ends the members that the statement marks, and returns their names. It also continues with members marked
// earlier.
func (e *Engine) end(ctx context.Context, b *pgx.Batch, mark string, args ...any) (names []string, err error) {
	b.Queue(mark, args...).Query(func(rows pgx.Rows) (err error) {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	b.Queue(e.sql.freeOfGone)
	b.Queue(e.sql.deleteGone)
	return names, e.control.SendBatch(ctx, b).Close()
}

// batch returns the beginning of a transaction.
func (e *Engine) batch() *pgx.Batch {
	b := &pgx.Batch{}
	if !e.direct {
		b.Queue(e.sql.set)
	}
	return b
}

// A status is the server's time, and whether the member is one.
type status struct {
	now    int64
	member bool
}

// as runs statements for a member, in one transaction, and returns the server's time. The statements set the status. The
// error is ErrMemberGone if the member is gone.
func (e *Engine) as(ctx context.Context, id engine.MemberID, what string, b *pgx.Batch, s *status,
) (now int64, err error) {
	sent := time.Now()
	err = e.control.SendBatch(ctx, b).Close()
	switch {
	case err != nil:
		return 0, explain(what, err)
	case !s.member: // nothing was done: a member that holds or gets a task remains one until the end of the transaction
		return 0, gone(id)
	}
	e.saw(sent, s.now)
	return s.now, nil
}

// queueStatus adds a statement that sets the status.
func (e *Engine) queueStatus(b *pgx.Batch, id engine.MemberID, s *status) {
	b.Queue(e.sql.status, int64(id)).QueryRow(func(row pgx.Row) error { return row.Scan(&s.now, &s.member) })
}

// A reading is the server's time in an answer, and when this process sent the question.
type reading struct {
	sent time.Time
	now  int64
}

// fresh is how long a reading may take, and how long it is valid.
const fresh = 200 * time.Millisecond

// saw keeps a reading, if it is valid.
func (e *Engine) saw(sent time.Time, now int64) {
	if time.Since(sent) < fresh {
		e.seen.Store(&reading{sent, now})
	}
}

// time returns the server's time, or a time later by at most as long as the reading took. A stored reading saves the
// user's transaction a round trip. A started scheduler takes ten readings a second. Without a scheduler, one
// transaction makes a reading for all others within fresh.
func (e *Engine) time(ctx context.Context, tx Tx) (now int64, err error) {
	if r := e.seen.Load(); r != nil {
		if age := time.Since(r.sent); age < fresh {
			return r.now + int64(age), nil
		}
	}
	sent := time.Now()
	if _, err = one(ctx, tx, e.sql.now, nil, &now); err == nil {
		e.saw(sent, now)
	}
	return now, err
}

// Claim gives tasks to the member. If a kind has payloads of two versions, and a fair claim takes several tasks of a
// group, it gives the tasks of one version before those of the other. See engine.Engine.
func (e *Engine) Claim(ctx context.Context, r engine.ClaimRequest) (c engine.Claims, err error) {
	by, kinds, most, readable := int64(r.By), names(r.Kinds), max(r.Most, 0), []byte{r.Readable}
	if r.Fair {
		return e.claim(ctx, r.By, e.sql.turns, by, kinds, []byte(r.Group), r.Until, most, readable)
	}
	var s status
	var due bool
	b := e.batch()
	b.Queue(e.sql.look, by, kinds, r.After, r.Until).QueryRow(func(row pgx.Row) error {
		return row.Scan(&s.now, &s.member, &due)
	})
	if c.Now, err = e.as(ctx, r.By, "claim", b, &s); err == nil && due {
		c, err = e.claim(ctx, r.By, e.sql.claim, by, kinds, r.After, r.Until, most, readable)
	}
	return c, err
}

// claim makes a claim with the statement.
func (e *Engine) claim(ctx context.Context, by engine.MemberID, statement string, args ...any,
) (c engine.Claims, err error) {
	var s status
	b := e.batch()
	b.Queue(statement, args...).Query(func(rows pgx.Rows) (err error) {
		if c.Tasks, err = pgx.CollectRows(rows, scanOne); err != nil {
			return err
		}
		end := len(c.Tasks) - 1
		last := c.Tasks[end]
		c.Tasks, c.Next, s = c.Tasks[:end], last.Key, status{last.Due, last.Owner != 0}
		return nil
	})
	if c.Now, err = e.as(ctx, by, "claim", b, &s); err != nil {
		return engine.Claims{}, err
	}
	slices.SortFunc(c.Tasks, func(a, b engine.Stored) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), strings.Compare(a.Key, b.Key))
	})
	return c, nil
}

// names returns texts as bytes, because they need not be UTF-8.
func names(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}

// Confirm confirms starts. It does not wait for the disk: when the server crashes, the starts of its last
// moments may not be counted. A task that is locked for longer than some 15 ms is not confirmed. See
// engine.Engine.
func (e *Engine) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim,
) (held []bool, now int64, err error) {
	confirmed := make(map[engine.Claim]bool)
	left := claims
	for pause := time.Millisecond; ; pause *= 2 {
		if now, err = e.confirm(ctx, by, left, confirmed); err != nil {
			return nil, 0, err
		}
		if len(confirmed) == len(claims) || pause > 8*time.Millisecond {
			break
		}
		// A claim by another member, or a commit with an unmet condition, locks tasks that it does not change.
		if left, err = e.stillHeld(ctx, by, left, confirmed); err != nil {
			return nil, 0, err
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(pause)
	}
	held = make([]bool, len(claims))
	for i, c := range claims {
		held[i] = confirmed[c]
	}
	return held, now, nil
}

// confirm notes which of the claims are confirmed.
func (e *Engine) confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim,
	confirmed map[engine.Claim]bool,
) (now int64, err error) {
	b := e.batch()
	var s status
	b.Queue(e.sql.confirm, arguments(by, claims)...).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scanClaim)
		if err != nil {
			return err
		}
		end := len(found) - 1
		for _, c := range found[:end] {
			confirmed[c] = true
		}
		s = status{found[end].Revision, found[end].Starts == 1}
		return nil
	})
	return e.as(ctx, by, "confirm", b, &s)
}

// stillHeld returns the claims that the member holds, except confirmed ones.
func (e *Engine) stillHeld(ctx context.Context, by engine.MemberID, claims []engine.Claim,
	confirmed map[engine.Claim]bool,
) (held []engine.Claim, err error) {
	rows, err := e.control.Query(ctx, e.sql.stillHeld, arguments(by, claims)...)
	if err == nil {
		held, err = pgx.CollectRows(rows, scanClaim)
	}
	return slices.DeleteFunc(held, func(c engine.Claim) bool { return confirmed[c] }), explain("read claims", err)
}

func scanClaim(row pgx.CollectableRow) (c engine.Claim, err error) {
	var key []byte
	err = row.Scan(&key, &c.Revision, &c.Starts)
	c.Key = string(key)
	return c, err
}

// Release gives up claims, except claims of tasks that another transaction has locked. See engine.Engine.
func (e *Engine) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	b := e.batch()
	var s status
	b.Queue(e.sql.release, arguments(by, claims)...)
	e.queueStatus(b, by, &s)
	_, err := e.as(ctx, by, "release", b, &s)
	return err
}

// arguments returns the arguments of a statement on claims.
func arguments(by engine.MemberID, claims []engine.Claim) []any {
	keys, revisions, starts := make([][]byte, len(claims)), make([]int64, len(claims)), make([]int32, len(claims))
	for i, c := range claims {
		keys[i], revisions[i], starts[i] = []byte(c.Key), c.Revision, int32(c.Starts)
	}
	return []any{int64(by), keys, revisions, starts}
}
