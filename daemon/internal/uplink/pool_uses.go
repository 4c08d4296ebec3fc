// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// The registry refuses longer texts. It also refuses unprintable characters, which a domain
// definition may have.
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
	return request.Cut(text, most)
}

// addUses adds to pools the files that domains and their managed save images name, except images
// of their attachments, which the registry knows. A domain counts as a possible user of every pool
// if the domain or its files could not be read. blind is the error if libvirt could not list all
// domains; then too every pool gets a possible user.
func addUses(pools []api.Pool, doms []hv.Domain, unreadable []hv.UnreadableDomain, blind error, attachments map[string][]api.Attachment, files *namedFiles) {
	var unknown []api.PoolUse
	if blind != nil {
		unknown = append(unknown, api.PoolUse{Unknown: bounded(blind.Error(), maxUseText)})
	}
	for _, d := range unreadable {
		unknown = append(unknown, unknownUse(cmp.Or(d.Name, d.ID), d.Err.Error()))
	}
	var uses []use
	for i := range doms {
		d := &doms[i]
		if d.FilesUnknown != "" {
			unknown = append(unknown, unknownUse(d.Name, d.FilesUnknown))
		}
		named, why := usesOf(d, attachments[d.ID], files)
		uses, unknown = append(uses, named...), append(unknown, why...)
	}
	for i := range pools {
		p := &pools[i]
		p.Uses = slices.Clone(unknown)
		if !p.Active {
			p.Uses = append(p.Uses, api.PoolUse{Unknown: "the pool is not active, and what is in it is not seen"})
		}
		for _, u := range uses {
			if u.isIn(p, files) {
				p.Uses = append(p.Uses, api.PoolUse{Domain: bounded(u.Domain, maxUseText), What: bounded(u.What, maxUseText), Path: bounded(u.Path, maxUsePath)})
			}
		}
	}
}

func unknownUse(domain, why string) api.PoolUse {
	return api.PoolUse{Domain: bounded(domain, maxUseText), Unknown: bounded(why, maxUseText)}
}

type use struct {
	api.PoolUse
	pool string
}

func (u *use) isIn(p *api.Pool, files *namedFiles) bool {
	if u.pool != "" {
		return u.pool == p.Name
	}
	real := *p
	real.Path = files.at(p.Path)
	return p.Covers(u.Path) || real.Covers(files.at(u.Path))
}

// usesOf returns the files that a domain uses, except the images of its attachments.
func usesOf(d *hv.Domain, attachments []api.Attachment, files *namedFiles) (uses []use, unknown []api.PoolUse) {
	mine := map[string]bool{}
	inPools := map[[2]string]bool{}
	for i := range attachments {
		a := &attachments[i]
		inPools[[2]string{a.Location.Pool, a.Location.Name}] = a.Location.Pool != ""
		for _, image := range imagesAt(&a.Location) {
			mine[files.at(image)] = true
		}
	}
	add := func(what, path string) {
		if !mine[files.at(path)] {
			uses = append(uses, use{PoolUse: api.PoolUse{Domain: d.Name, What: what, Path: path}})
		}
	}
	for _, f := range d.Files {
		switch {
		case f.Pool == "":
			add(f.What, f.Path)
		case !inPools[[2]string{f.Pool, f.Path}]:
			uses = append(uses, use{api.PoolUse{Domain: d.Name, What: f.What, Path: f.Path}, f.Pool})
		}
	}
	for i := range d.Config {
		disk := &d.Config[i]
		top := disk.Top().Path
		for _, path := range files.beneath[top] {
			add(disk.Device+" "+disk.Target, path)
		}
		if err := files.unread[top]; err != nil {
			unknown = append(unknown, unknownUse(d.Name, err.Error()))
		}
	}
	return uses, unknown
}
