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
	"github.com/seed581295f1/timewheel/internal/recent"
)

// longest is the longest lease. Longer leases are reduced to this value.
const longest = 100 * 365 * 24 * time.Hour

// Join adds a member. See engine.Engine.
func (e *Engine) Join(ctx context.Context, name string, lease time.Duration,
) (id engine.MemberID, now int64, err error) {
	for err = pgx.ErrNoRows; errors.Is(err, pgx.ErrNoRows); { // no row: a member has the ID already
		err = e.control.QueryRow(ctx, e.sql.join, text(name), int64(min(lease, longest)), int64(engine.NewMemberID(0))).
			Scan(&id, &now, nil)
	}
	return id, now, explain("join", err)
}

// Renew extends the member's lease, commits the renewal, and then reads the members. In a single transaction, two
// members that renew at the same time could each miss the other's report. See engine.Engine.
func (e *Engine) Renew(ctx context.Context, by engine.MemberID, report []byte,
) (members []engine.Membership, now int64, err error) {
	return e.renewAnd(ctx, by, report, func(*pgx.Batch) {})
}

// renewAnd is Renew. In the transaction that reads the members, it also sends what read adds.
func (e *Engine) renewAnd(ctx context.Context, by engine.MemberID, report []byte, read func(b *pgx.Batch),
) (members []engine.Membership, now int64, err error) {
	if err := valid.Report(report); err != nil {
		return nil, 0, err
	}
	for range 2 {
		var renewed bool
		members, now, renewed, err = e.renew(ctx, by, report, read)
		switch {
		case err != nil:
			return nil, 0, explain("renew", err)
		case renewed:
			return members, now, nil
		case !slices.ContainsFunc(members, func(m engine.Membership) bool { return m.ID == by }):
			return nil, 0, gone(by)
		}
		// A concurrent renewal has shortened the member's lease because the server's clock was set back. A second try
		// sees the new row.
	}
	return nil, 0, fmt.Errorf("postgres: renew: member %d exists, but the server does not update its row", by)
}

// renew performs one try of Renew.
func (e *Engine) renew(ctx context.Context, by engine.MemberID, report []byte, read func(b *pgx.Batch),
) (members []engine.Membership, now int64, renewed bool, err error) {
	scanNow := func(row pgx.Row) error {
		err := row.Scan(&now, nil)
		renewed = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	}
	var b *pgx.Batch
	if by == 0 {
		b = e.batch()
		renewed = true
		b.Queue(e.sql.now).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	} else {
		b = &pgx.Batch{}
		b.Queue("BEGIN")
		b.Queue(e.sql.renew, int64(by), report).QueryRow(scanNow)
		b.Queue("COMMIT")
	}
	b.Queue(e.sql.members).Query(func(rows pgx.Rows) (err error) {
		members, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m engine.Membership, err error) {
			err = row.Scan(&m.ID, &m.Name, &m.Lease, &m.Left, &m.Report)
			m.Left -= time.Duration(now) // the row contains the time at which the lease expires
			return m, err
		})
		return err
	})
	read(b)
	err = e.control.SendBatch(ctx, b).Close()
	return members, now, renewed, err
}

func gone(id engine.MemberID) error {
	return fmt.Errorf("postgres: member %d: %w", id, engine.ErrMemberGone)
}

// Leave removes the member. Tasks of the member that are locked by another transaction are freed by a later Reap. See
// engine.Engine.
func (e *Engine) Leave(ctx context.Context, by engine.MemberID) error {
	_, err := e.end(ctx, e.batch(), e.sql.markLeft, int64(by))
	if err == nil {
		e.signal(true)
	}
	return explain("leave", err)
}

// Reap removes the members whose leases have expired. Tasks of these members that are locked by another transaction are
// freed by a later Reap. See engine.Engine.
func (e *Engine) Reap(ctx context.Context) (names []string, err error) {
	var any bool
	if err := e.control.QueryRow(ctx, e.sql.anythingDead).Scan(&any); err != nil || !any {
		return nil, explain("reap", err)
	}
	b := e.batch()
	b.Queue(e.sql.noticeServer)
	b.Queue(e.sql.cutLeases)
	names, err = e.end(ctx, b, e.sql.markDead)
	if len(names) > 0 {
		e.signal(true)
	}
	return names, explain("reap", err)
}

// end removes the members that the statement marks, and returns their names. It also continues the removal of members
// that were marked earlier.
func (e *Engine) end(ctx context.Context, b *pgx.Batch, mark string, args ...any) (names []string, err error) {
	b.Queue(mark, args...).Query(func(rows pgx.Rows) (err error) {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	b.Queue(e.sql.freeOfGone)
	b.Queue(e.sql.deleteGone)
	return names, e.control.SendBatch(ctx, b).Close()
}

// batch returns a batch for one transaction. Unless the connections are direct, the batch begins with the planner
// settings.
func (e *Engine) batch() *pgx.Batch {
	b := &pgx.Batch{}
	if !e.direct {
		b.Queue(e.sql.set)
	}
	return b
}

// A status holds the server's time and whether the member still exists.
type status struct {
	now    int64
	member bool
}

// as runs a batch of statements for a member in one transaction and returns the server's time. One of the statements
// must set the status. The error is ErrMemberGone if the member is gone.
func (e *Engine) as(ctx context.Context, id engine.MemberID, what string, b *pgx.Batch, s *status,
) (now int64, err error) {
	sent := time.Now()
	err = e.control.SendBatch(ctx, b).Close()
	switch {
	case err != nil:
		return 0, explain(what, err)
	case !s.member: // nothing was done: a member that holds or claims a task exists until the transaction ends
		return 0, gone(id)
	}
	e.saw(sent, s.now)
	return s.now, nil
}

// queueStatus adds a statement that sets the status.
func (e *Engine) queueStatus(b *pgx.Batch, id engine.MemberID, s *status) {
	b.Queue(e.sql.status, int64(id)).QueryRow(func(row pgx.Row) error { return row.Scan(&s.now, &s.member) })
}

// A reading is a time reported by the server, and the time at which this process sent the request for it.
type reading struct {
	sent time.Time
	now  int64
}

// fresh is the longest time that a reading may take. It is also how long a reading remains valid.
const fresh = 200 * time.Millisecond

// saw stores a reading unless it took too long.
func (e *Engine) saw(sent time.Time, now int64) {
	if time.Since(sent) < fresh {
		e.seen.Store(&reading{sent, now})
	}
}

// time returns the server's time. The result may be ahead of the server by at most the time that the reading took. A
// stored reading saves the user's transaction a round trip. A running scheduler takes ten readings a second. Without a
// scheduler, one transaction takes a reading, and all others use that reading while it is valid.
func (e *Engine) time(ctx context.Context, tx Tx) (now int64, err error) {
	if r := e.seen.Load(); r != nil {
		if age := recent.Since(r.sent); age < fresh {
			return r.now + int64(age), nil
		}
	}
	sent := time.Now()
	if _, err = one(ctx, tx, e.sql.now, nil, &now); err == nil {
		e.saw(sent, now)
	}
	return now, err
}

// Claim assigns tasks to the member. If a kind has payloads of two versions and a fair claim takes several tasks of a
// group, it takes the tasks of one version before those of the other. See engine.Engine.
func (e *Engine) Claim(ctx context.Context, r engine.ClaimRequest) (c engine.Claims, err error) {
	by, kinds, most, readable := int64(r.By), names(r.Kinds), max(r.Most, 0), []byte{r.Readable}
	if r.Fair {
		return e.claim(ctx, r.By, e.sql.turns, by, kinds, []byte(r.Group), r.Until, most, readable)
	}
	due := true
	if len(kinds) > fewKinds {
		c.Now, due, err = e.look(ctx, r.By, e.sql.probe, by, r.After, r.Until)
	}
	if err == nil && due {
		c.Now, due, err = e.look(ctx, r.By, e.sql.look, by, kinds, r.After, r.Until)
	}
	if err == nil && due {
		c, err = e.claim(ctx, r.By, e.sql.claim, by, kinds, r.After, r.Until, most, readable)
	}
	return c, err
}

// fewKinds is the number of kinds up to which looking into each takes about as long as a round trip.
const fewKinds = 16

// look reports whether the statement finds a due task.
func (e *Engine) look(ctx context.Context, by engine.MemberID, statement string, args ...any,
) (now int64, due bool, err error) {
	var s status
	b := e.batch()
	b.Queue(statement, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&s.now, &s.member, &due) })
	now, err = e.as(ctx, by, "claim", b, &s)
	return now, due, err
}

// claim claims tasks with the given statement.
func (e *Engine) claim(ctx context.Context, by engine.MemberID, statement string, args ...any,
) (c engine.Claims, err error) {
	var s status
	b := e.batch()
	b.Queue(statement, args...).Query(func(rows pgx.Rows) (err error) {
		if c.Tasks, err = pgx.CollectRows(rows, scan); err != nil {
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

// names converts texts to byte slices, because the texts need not be valid UTF-8.
func names(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}

// Confirm confirms starts. It does not wait for the disk, so the most recent starts before a server crash may go
// uncounted. A task that stays locked for longer than about 15 ms is not confirmed. See engine.Engine.
func (e *Engine) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) (held []bool, now int64, err error) {
	confirmed := make(map[engine.Claim]bool)
	left := claims
	for pause := time.Millisecond; ; pause *= 2 {
		if now, err = e.confirm(ctx, by, left, within, confirmed); err != nil {
			return nil, 0, err
		}
		if len(confirmed) == len(claims) || pause > 8*time.Millisecond {
			break
		}
		// Another member's claim, or a commit with an unmet condition, may lock tasks without changing them.
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

// confirm tries once to confirm the claims, and adds each confirmed claim to the map.
func (e *Engine) confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
	confirmed map[engine.Claim]bool,
) (now int64, err error) {
	b := e.batch()
	var s status
	b.Queue(e.sql.confirm, append(arguments(by, claims), int64(within))...).Query(func(rows pgx.Rows) error {
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

// stillHeld returns the unconfirmed claims that the member still holds.
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

// Release gives up the claims, except claims on tasks that another transaction has locked. See engine.Engine.
func (e *Engine) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	b := e.batch()
	var s status
	b.Queue(e.sql.release, arguments(by, claims)...)
	e.queueStatus(b, by, &s)
	_, err := e.as(ctx, by, "release", b, &s)
	if err == nil {
		e.signal(true)
	}
	return err
}

// arguments returns the arguments for a statement that operates on claims.
func arguments(by engine.MemberID, claims []engine.Claim) []any {
	keys, revisions, starts := make([][]byte, len(claims)), make([]int64, len(claims)), make([]int32, len(claims))
	for i, c := range claims {
		keys[i], revisions[i], starts[i] = []byte(c.Key), c.Revision, int32(c.Starts)
	}
	return []any{int64(by), keys, revisions, starts}
}
