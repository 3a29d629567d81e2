// SPDX-License-Identifier: MIT

package durable_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
)

func TestContract_ofEveryScheduler(t *testing.T) {
	suite.Test(t, func(*testing.T) durable.Store { return newStore() })
}
