// SPDX-License-Identifier: MIT

package node

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
	"github.com/seed581295f1/timewheel/durable/internal/past"
)

// Nodes ask each other questions through notes in the engine. A question is stored in the note "question/<id>", and an
// answer to it in the note "answer/<id>/<member>". When the asking node is done, it deletes the question and the
// answers. If a question is older than keepQuestions, the node that asked it is gone. A node that reads an old question
// deletes the question and its answers.
const (
	questionPrefix = "question/"
	answerPrefix   = "answer/"
	keepQuestions  = 24 * time.Hour
)

// asked is the content of a question note.
type asked struct {
	At       int64             `json:"at"`      // when it was asked, by the engine's clock
	Members  []engine.MemberID `json:"members"` // the members that were asked
	Question Question          `json:"question"`

	id   string
	data []byte // the content of the note
}

// An answer is the reply of a node that was asked and is still a member.
type answer struct {
	node  string
	given bool // the node has answered; if a run was running, it answers once more
	reply
}

// notes returns an iterator over the notes whose names begin with prefix.
func (n *Node) notes(ctx context.Context, prefix string) iter.Seq2[engine.Stored, error] {
	return n.engine.Walk(ctx, engine.Range{Order: engine.Notes, From: prefix, To: past.AfterPrefix(prefix)})
}

// note returns the note with the given name, or a note without Data if there is none.
func (n *Node) note(ctx context.Context, name string) (engine.Stored, error) {
	for note, err := range n.notes(ctx, name) {
		if err != nil || note.Key == name {
			return note, err
		}
	}
	return engine.Stored{}, nil
}

// putNote returns a write that replaces the note at the given revision, or creates it if the revision is 0.
func putNote(name string, data []byte, revision int64) engine.Write {
	w := engine.Write{Record: engine.Record{Key: name, Data: data}, Note: true, If: engine.IfUnchanged, Revision: revision}
	if revision == 0 {
		w.If = engine.IfAbsent
	}
	return w
}

// askOthers writes a question for all other members.
func (n *Node) askOthers(ctx context.Context, q Question) (*asked, error) {
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

// forgetQuestion deletes a question and its answers. If that fails, the question remains until a node deletes it a day
// later.
func (n *Node) forgetQuestion(q *asked) {
	if q.data == nil { // there was no other node to ask
		return
	}
	ctx, cancel := n.callContext()
	defer cancel()
	for range 2 { // answers may be written until the question is deleted, but not after that
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

// answers reads the answers to a question. A client reaps first, because the engine may have no member that does so.
func (n *Node) answers(ctx context.Context, q *asked) (all []answer, err error) {
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
			_ = json.Unmarshal(data, &a.reply) // an answer in an unknown format counts as empty
			all = append(all, a)
		}
	}
	return all, nil
}

// readNews reads the pauses and then the other nodes' questions, oldest first, from notes that were requested at asked, by
// the node's own clock. The pauses take effect on this node before the questions are read, so that a large number of
// questions does not delay them.
func (n *Node) readNews(notes iter.Seq2[engine.Stored, error], asked int64) (questions []engine.Stored, err error) {
	learned := false
	var latest engine.Stored
	learn := func(pauses engine.Stored) {
		if !learned {
			_, _, _ = n.learn(pauses, asked)
		}
		learned = true
	}
	for note, err := range notes {
		switch {
		case err != nil:
			return nil, err
		case note.Key == pausesNote:
			learn(note)
		case strings.HasPrefix(note.Key, questionPrefix):
			learn(engine.Stored{})
			questions = append(questions, note)
		case note.Key == timeNote:
			latest = note
		}
	}
	learn(engine.Stored{})
	n.watchClock(latest)
	return questions, nil
}

// asked returns the questions for the member and deletes old questions.
func (n *Node) asked(questions []engine.Stored, member engine.MemberID) (all []*asked) {
	for _, note := range questions {
		q := &asked{id: strings.TrimPrefix(note.Key, questionPrefix), data: note.Data}
		if json.Unmarshal(note.Data, q) != nil { // a question in an unknown format matches no run on this node
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

// reply writes the member's answer if the question still exists. It replaces only the last answer known to the node, so
// a delayed write never replaces a later answer.
func (n *Node) reply(ctx context.Context, member engine.MemberID, q *asked, i *inquiry, r reply) error {
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
	was, err := n.note(ctx, name) // an earlier call may have written an answer although it failed
	if err == nil {
		i.revision = was.Revision
	}
	return err
}
