// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// Sort sorts the things of all pages into the order of the whole list.
func Sort[T any](route Route[None, []T], things []T) {
	SortBy(route, things, func(thing T) T { return thing })
}

// SortBy is Sort for items that contain the things.
func SortBy[T, Item any](route Route[None, []T], items []Item, thing func(Item) T) {
	if order, ok := route.order.(func(a, b T) int); ok {
		slices.SortStableFunc(items, func(a, b Item) int { return order(thing(a), thing(b)) })
	}
}

func newestFirst(a, b time.Time) int { return b.Compare(a) }

func hostOrder(a, b api.Host) int       { return strings.Compare(a.Name, b.Name) }
func typeOrder(a, b api.VolumeType) int { return strings.Compare(a.Name, b.Name) }
func policyOrder(a, b api.Policy) int   { return strings.Compare(a.Name, b.Name) }
func volumeOrder(a, b api.Volume) int   { return strings.Compare(a.Name, b.Name) }
func instanceOrder(a, b api.Instance) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
}

func poolOrder(a, b api.Pool) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Host, b.Host))
}

func attachmentOrder(a, b api.Attachment) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
}

func drainOrder(a, b api.Drain) int {
	return cmp.Or(newestFirst(a.StartedAt, b.StartedAt), strings.Compare(a.ID, b.ID))
}

func migrationOrder(a, b api.Migration) int {
	return cmp.Or(newestFirst(startOf(a), startOf(b)), strings.Compare(a.ID, b.ID))
}

func startOf(m api.Migration) (at time.Time) {
	if m.StartedAt != nil {
		at = *m.StartedAt
	}
	return at
}
