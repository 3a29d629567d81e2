// SPDX-License-Identifier: MIT

package durable

// DataOf returns the data of the record of a task that runs once, as a scheduler adds it.
func DataOf(task Task, due int64, generation uint64) []byte {
	r := record{key: task.Key, kind: task.Kind, payload: task.Payload, times: 1, generation: generation, grid: due}
	return r.encode()
}
