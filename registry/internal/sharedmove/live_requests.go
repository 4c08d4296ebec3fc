// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

func liveRequest(p *workflow.Pause, h workflow.LiveHost, c workflow.LiveCall) hostop.Request {
	m, v := p.Migration, liveVolume(p, h)
	generation, round := strconv.Itoa(c.Generation), strconv.Itoa(c.Round)
	r := hostop.Request{HostID: h.ID, HostName: h.Name, ByID: true}
	id := func(verb string, about ...string) string { return hostop.Key(m.ID, verb, c.Attempt, about...) }
	switch c.Verb {
	case workflow.LiveCheck:
		r.Path, r.Body = routes.CheckLive.PathOf(m.ID), api.LiveCheck{LiveVolume: v}
	case workflow.LiveMake:
		r.Key, r.Path, r.Body = id(verbMake), routes.MakeLive.PathOf(m.ID), api.LiveMake{LiveVolume: v, CopyOptions: p.Request.CopyOptions, Overwrite: p.Request.Overwrite}
	case workflow.LiveTrack:
		r.Key, r.Path, r.Body = id("track", h.ID, generation), routes.TrackLive.PathOf(m.ID), api.LiveTrack{LiveVolume: v, Generation: c.Generation}
	case workflow.LiveSwap:
		r.Key, r.Path = id("swap", h.ID, generation, round), routes.SwapLive.PathOf(m.ID)
		r.Body = api.LiveSwap{LiveVolume: v, Generation: c.Generation, Round: c.Round}
	case workflow.LiveRound:
		body := api.LiveRound{LiveVolume: v, Generation: c.Generation, Round: c.Round, CopyOptions: copyOptions(p)}
		if c.Round == 0 {
			body.FromBytes, body.UntilBytes = h.From, h.Until
		}
		body.WriteBytesPerSecond = p.Live.WriteLimit(h, len(v.Instances))
		r.Key, r.Path, r.Body = id("round", h.ID, generation, round), routes.CopyRound.PathOf(m.ID), body
	case workflow.LiveRead:
		r.Key, r.Path, r.Body = id("read", h.ID, generation), routes.LastRead.PathOf(m.ID), api.LiveLastRead{LiveVolume: v, Generation: c.Generation}
	case workflow.LiveLast:
		r.Key, r.Path = id("last", h.ID, generation), routes.LastCopy.PathOf(m.ID)
		r.Body = api.LiveLastCopy{LiveVolume: v, Generation: c.Generation, CopyOptions: copyOptions(p)}
	case workflow.LiveEnd:
		r.Key, r.Path, r.Body = id("end", h.ID, generation, round), routes.EndRound.PathOf(m.ID), api.LiveEndRound{LiveVolume: v, Generation: c.Generation}
	case workflow.LiveUntrack:
		r.Key, r.Path, r.Body = id("untrack", h.ID), routes.UntrackLive.PathOf(m.ID), api.LiveUntrack{LiveVolume: v}
	}
	return r
}

func liveVolume(p *workflow.Pause, h workflow.LiveHost) api.LiveVolume {
	m := p.Migration
	v := api.LiveVolume{
		MigrationID: m.ID, VolumeID: m.VolumeID, VolumeName: m.VolumeName, Instances: []string{}, Src: m.Src, Dst: m.Dst, UnitBytes: p.Live.UnitBytes,
	}
	for _, g := range p.Instances {
		if g.Host.ID == h.ID {
			v.Instances = append(v.Instances, g.ID)
		}
	}
	return v
}

// copyOptions returns the options of one host's copy. All hosts copy at once and share the
// bandwidth.
func copyOptions(p *workflow.Pause) api.CopyOptions {
	o := p.Request.CopyOptions
	if o.BandwidthBytesPerSecond > 0 {
		o.BandwidthBytesPerSecond = max(1, o.BandwidthBytesPerSecond/int64(len(p.Live.Hosts)))
	}
	return o
}
