package kv

import (
	"context"
	"errors"

	"github.com/seed581295f1/timewheel/durable/engine"
)

func newAlone(ctx context.Context, kv engine.KV) (engine.Engine, error) { return nil, errors.New("todo") }
