// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"strings"

	"github.com/seed581295f1/timewheel/durable"
)

// failuresPrefix begins the keys of tasks about failures. They are not under the prefix of the failed task, because that may be a
// declared set.
const failuresPrefix = "failed/"

// about returns the task about a failure. Its payload is the failed task as a caller reads it, without its payload if that has no
// room. Its key is one that no other failure has.
func (of *Kind) about(failed durable.Info) durable.Task {
	payload, _ := toJSON(newTaskResponse(failed, true))
	if len(payload) > durable.MaxPayload {
		payload, _ = toJSON(newTaskResponse(failed, false))
	}
	run := fmt.Sprintf("/%x.%d", failed.Generation, failed.Seq)
	key := failed.Key[:min(len(failed.Key), durable.MaxKey-len(failuresPrefix)-len(run))]
	return durable.Task{
		Key: failuresPrefix + strings.ToValidUTF8(key, "") + run, Kind: of.OnFailure, Payload: payload, Group: failed.Group, Trace: failed.Trace,
	}
}
