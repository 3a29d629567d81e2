// SPDX-License-Identifier: MIT

package clock

import (
	"context"
	"time"
)

// PauseFor waits for d. It returns the error of ctx if ctx is done first.
func PauseFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
