// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// The registry refuses a report with longer texts, or with characters that cannot be printed, which
// a definition may have.
const (
	maxUseText = 255
	maxUsePath = 4095
)

func bounded(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// addUses adds to pools the files below their paths that domains name and that are no volumes of
// attachments. The registry knows those, and they come and go while volumes move. Domains that
// could not be read, or all of them (blind), may use every pool.
func addUses(pools []api.Pool, doms []hv.Domain, unreadable []hv.UnreadableDomain, blind error, attachments map[string][]api.Attachment) {
	var unknown []api.PoolUse
	if blind != nil {
		unknown = append(unknown, api.PoolUse{Unknown: bounded(blind.Error(), maxUseText)})
	}
	for _, d := range unreadable {
		unknown = append(unknown, api.PoolUse{Domain: bounded(cmp.Or(d.Name, d.ID), maxUseText), Unknown: bounded(d.Err.Error(), maxUseText)})
	}
	var uses []api.PoolUse
	for i := range doms {
		uses = append(uses, usesOf(&doms[i], attachments[doms[i].ID])...)
	}
	for i := range pools {
		p := &pools[i]
		p.Uses = slices.Clone(unknown)
		for _, u := range uses {
			if p.HasBelow(u.Path) {
				u.Domain, u.What, u.Path = bounded(u.Domain, maxUseText), bounded(u.What, maxUseText), bounded(u.Path, maxUsePath)
				p.Uses = append(p.Uses, u)
			}
		}
		slices.SortFunc(p.Uses, api.PoolUse.Compare)
		p.Uses = slices.Compact(p.Uses)
		p.Uses = p.Uses[:min(len(p.Uses), api.MaxPoolUses)]
	}
}

// usesOf returns the files that a domain names, but for the disks of these attachments.
func usesOf(d *hv.Domain, attachments []api.Attachment) (uses []api.PoolUse) {
	for _, disks := range [][]hv.Disk{d.Live, d.Config} {
		for i := range disks {
			disk := &disks[i]
			if slices.ContainsFunc(attachments, func(a api.Attachment) bool { return a.Device == disk.Target }) {
				continue
			}
			for _, img := range disk.Chain {
				uses = append(uses, api.PoolUse{Domain: d.Name, What: disk.Device + " " + disk.Target, Path: img.Path})
			}
		}
	}
	for _, f := range d.Files {
		uses = append(uses, api.PoolUse{Domain: d.Name, What: f.What, Path: f.Path})
	}
	return uses
}
