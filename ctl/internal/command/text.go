// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"time"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
)

func nameWithID(names map[string]string, id string) string {
	if n := names[id]; n != "" {
		return n + " (" + id + ")"
	}
	return id
}

func addLocation(r *render.Record, prefix string, l api.Location) {
	if l.Pool != "" {
		r.Add(prefix+"pool", l.Pool)
		r.Add(prefix+"name in pool", l.Name)
	}
	r.Add(prefix+"path", l.Path)
	r.AddIf(prefix+"identity", l.Identity)
	r.Add(prefix+"format", string(l.Format))
	bases := l.Backing.Images()
	if len(bases) == 0 {
		return
	}
	lines := make([]string, 0, len(bases))
	for _, b := range bases {
		lines = append(lines, fmt.Sprintf("%s (%s)", b.Path, b.Format))
	}
	r.Add(prefix+"base images", lines...)
}

func hostOrNone(host string) string {
	if host == "" {
		return "no host"
	}
	return "host " + host
}

func onHostText(host string) string {
	if host == "" {
		return ""
	}
	return " on host " + host
}

func agoOrDash(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return render.Ago(*t, now)
}

func timeOrDash(t *time.Time) string {
	if t == nil {
		return ""
	}
	return render.Time(*t)
}

func atMost(rate int64) string {
	if rate == 0 {
		return "no limit"
	}
	return "at most " + render.Rate(rate)
}

func atMostEach(rate int64) string {
	if rate == 0 {
		return atMost(rate)
	}
	return atMost(rate) + " each"
}

func startedOf(m *api.Migration) time.Time {
	if m.StartedAt == nil {
		return time.Time{}
	}
	return *m.StartedAt
}
