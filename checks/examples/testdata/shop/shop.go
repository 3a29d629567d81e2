// SPDX-License-Identifier: MIT

// Package shop has names of every sort, for the test of the check: some are in its examples, some are not.
package shop

import "errors"

const Most = 8

const Full = 9

var Closed = errors.New("closed")

type Shop[T any] struct{ Goods []T }

func Open[T any](opts ...Option) *Shop[T] { return &Shop[T]{} }

func (s *Shop[T]) Sell() {}

func (s *Shop[T]) Close() {}

func (s *Shop[T]) clean() {}

type Option func()

func WithLight() Option { return nil }

type Unseen int

func Close() {}
