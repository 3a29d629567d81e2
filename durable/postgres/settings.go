// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// Settings reads the settings. See engine.Engine.
func (e *Engine) Settings(ctx context.Context) (settings []byte, revision int64, err error) {
	err = e.control.QueryRow(ctx, e.sql.settings).Scan(&settings, &revision)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, nil
	}
	return settings, revision, explain("read settings", err)
}

// SetSettings replaces the settings. See engine.Engine.
func (e *Engine) SetSettings(ctx context.Context, settings []byte, revision int64) (done bool, err error) {
	if err := valid.Settings(settings); err != nil {
		return false, err
	}
	tag, err := e.verbs.Exec(ctx, e.sql.setSettings, settings, revision)
	return tag.RowsAffected() == 1, explain("write settings", err)
}
