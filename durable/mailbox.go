// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// The nodes ask each other through notes in the engine. A question is the note "question/<id>", and an answer to it is
// the note "answer/<id>/<member>". The asking node deletes them at the end. If a node reads a question older than
// keepQuestions, the asking node is gone, and it deletes the question and its answers.
const (
	questionPrefix = "question/"
	answerPrefix   = "answer/"
	keepQuestions  = 24 * time.Hour
)

// An asked question is the content of its note.
type asked struct {
	At       int64             `json:"at"`      // by the engine's clock
	Members  []engine.MemberID `json:"members"` // that were asked
	Question question          `json:"question"`

	id   string
	data []byte // of the note
}

// An answer comes from a node that was asked and is still a member.
type answer struct {
	node  string
	given bool // it has answered, and answers again only while a run is running
	reply
}

// notes walks over the notes whose names have the prefix.
func (n *node) notes(ctx context.Context, prefix string) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		for note, err := range n.engine.Walk(ctx, engine.Range{Order: engine.Notes, From: prefix}) {
			if err == nil && !strings.HasPrefix(note.Key, prefix) || !yield(note, err) || err != nil {
				return
			}
		}
	}
}

// note returns the note with that name, or one without Data.
func (n *node) note(ctx context.Context, name string) (engine.Stored, error) {
	for note, err := range n.notes(ctx, name) {
		if err != nil || note.Key == name {
			return note, err
		}
	}
	return engine.Stored{}, nil
}

// putNote returns the write of a note at that revision, or of a new one at 0.
func putNote(name string, data []byte, revision int64) engine.Write {
	w := engine.Write{Record: engine.Record{Key: name, Data: data}, Note: true, If: engine.IfUnchanged, Revision: revision}
	if revision == 0 {
		w.If = engine.IfAbsent
	}
	return w
}

// askOthers writes a question to all other members.
func (n *node) askOthers(ctx context.Context, q question) (*asked, error) {
	members, now, err := n.engine.Renew(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	a := &asked{At: now, Question: q, id: fmt.Sprintf("%016x-%016x", now, rand.Uint64())}
	t := n.current()
	for _, m := range members {
		if t == nil || m.ID != t.id {
			a.Members = append(a.Members, m.ID)
		}
	}
	if len(a.Members) == 0 {
		return a, nil
	}
	if a.data, err = json.Marshal(a); err != nil {
		return nil, err
	}
	_, err = n.engine.Commit(ctx, 0, []engine.Batch{{putNote(questionPrefix+a.id, a.data, 0)}})
	return a, err
}

// forgetQuestion deletes a question with its answers. If that fails, the question remains until a node finds it a day
// later.
func (n *node) forgetQuestion(q *asked) {
	if q.data == nil { // there was no other node to ask
		return
	}
	ctx, cancel := n.callContext()
	defer cancel()
	for range 2 { // an answer may be written before the question is deleted, and none is after
		deletes := engine.Batch{{Record: engine.Record{Key: questionPrefix + q.id}, Note: true, If: engine.Always}}
		for note, err := range n.notes(ctx, answerPrefix+q.id+"/") {
			if err != nil {
				return
			}
			deletes = append(deletes, engine.Write{Record: engine.Record{Key: note.Key}, Note: true, If: engine.Always})
		}
		_, _ = n.engine.Commit(ctx, 0, []engine.Batch{deletes})
	}
}

// answers reads the answers to a question. A node that is not a member reaps first, because there may be no member to
// do so.
func (n *node) answers(ctx context.Context, q *asked) (all []answer, err error) {
	if len(q.Members) == 0 {
		return nil, nil
	}
	if n.client {
		if _, err := n.engine.Reap(ctx); err != nil {
			return nil, err
		}
	}
	members, _, err := n.engine.Renew(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	prefix := answerPrefix + q.id + "/"
	given := make(map[string][]byte)
	for note, err := range n.notes(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		given[strings.TrimPrefix(note.Key, prefix)] = note.Data
	}
	for _, m := range members {
		if slices.Contains(q.Members, m.ID) {
			a := answer{node: m.Name}
			var data []byte
			data, a.given = given[strconv.FormatInt(int64(m.ID), 10)]
			_ = json.Unmarshal(data, &a.reply) // an unknown form is no answer
			all = append(all, a)
		}
	}
	return all, nil
}

// readNews reads the pauses and then the questions of other nodes, the oldest first. The pauses take effect here before
// the questions are read, however many there are.
func (n *node) readNews(ctx context.Context) (questions []engine.Stored, err error) {
	asked, learned := n.own(), false
	learn := func(pauses engine.Stored) {
		if !learned {
			_, _, _ = n.learn(pauses, asked)
		}
		learned = true
	}
	for note, err := range n.engine.Walk(ctx, engine.Range{Order: engine.Notes, From: pausesNote}) {
		switch {
		case err != nil:
			return nil, err
		case note.Key == pausesNote:
			learn(note)
		case strings.HasPrefix(note.Key, questionPrefix):
			learn(engine.Stored{})
			questions = append(questions, note)
		}
	}
	learn(engine.Stored{})
	return questions, nil
}

// asked returns the questions to the member, and deletes old ones.
func (n *node) asked(questions []engine.Stored, member engine.MemberID) (all []*asked) {
	for _, note := range questions {
		q := &asked{id: strings.TrimPrefix(note.Key, questionPrefix), data: note.Data}
		if json.Unmarshal(note.Data, q) != nil { // a question of an unknown form is about no run here
			asked, _, _ := strings.Cut(q.id, "-")
			q.At, _ = strconv.ParseInt(asked, 16, 64)
		}
		switch {
		case q.At != 0 && n.clock.Earliest(n.own())-q.At > int64(keepQuestions):
			n.forgetQuestion(q)
		case slices.Contains(q.Members, member):
			all = append(all, q)
		}
	}
	return all
}

// reply writes the member's answer, if the question is still there. It replaces only the answer that it knows of, so a
// delayed write never replaces a later answer.
func (n *node) reply(ctx context.Context, member engine.MemberID, q *asked, i *inquiry, r reply) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := answerPrefix + q.id + "/" + strconv.FormatInt(int64(member), 10)
	there := engine.Write{Record: engine.Record{Key: questionPrefix + q.id, Data: q.data}, Note: true, If: engine.IfPresent}
	results, err := n.engine.Commit(ctx, 0, []engine.Batch{{there, putNote(name, data, i.revision)}})
	if err != nil {
		return err
	}
	if len(results[0].Unmet) == 0 {
		i.answered, i.last, i.revision = true, !r.Running, results[0].Written[1].Revision
		return nil
	}
	was, err := n.note(ctx, name) // an answer may have been written although the call failed
	if err == nil {
		i.revision = was.Revision
	}
	return err
}
