// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/volferry/volferry/daemon/internal/connector"
)

type report struct {
	place       place
	group       group
	warning     string
	volumes     []logical
	pool        *logical
	extentBytes int64
}

type logical struct {
	Name        string `json:"lv_name"`
	UUID        string `json:"lv_uuid"`
	GroupUUID   string `json:"vg_uuid"`
	Size        string `json:"lv_size"`
	Layout      string `json:"lv_layout"`
	PoolLV      string `json:"pool_lv"`
	Tags        string `json:"lv_tags"`
	DataPercent string `json:"data_percent"`
	ExtentSize  string `json:"vg_extent_size"`
	Zero        string `json:"zero"`
	DeviceOpen  string `json:"lv_device_open"`

	sizeBytes int64
	open      bool
}

// report reads the volume group. A missing pool is unavailable, not absent: its disks may be
// missing, so its content is unknown.
func (l lvm) report(ctx context.Context, p place) (*report, error) {
	own, warning, err := l.groupOf(ctx, p)
	if err != nil {
		return nil, err
	}
	text, err := l.within(ctx, own, "lvs", "--reportformat", "json", "--binary", "--units", "b", "--nosuffix",
		"--options", "lv_name,lv_uuid,vg_uuid,lv_size,lv_layout,pool_lv,lv_tags,data_percent,vg_extent_size,zero,lv_device_open", p.group)
	if err != nil {
		return nil, connector.Errorf(connector.CodeUnavailable, "volume group %s cannot be read: %v", p.group, err)
	}
	var doc struct {
		Report []struct {
			LV []logical `json:"lv"`
		} `json:"report"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, connector.Errorf(connector.CodeFailed, "lvs says what cannot be read: %v", err)
	}
	r := &report{place: p, group: own, warning: warning}
	for _, part := range doc.Report {
		r.volumes = append(r.volumes, part.LV...)
	}
	for i := range r.volumes {
		v := &r.volumes[i]
		if v.sizeBytes, err = strconv.ParseInt(v.Size, 10, 64); err != nil {
			return nil, connector.Errorf(connector.CodeFailed, "lvs says that %s has %.40q bytes", v.Name, v.Size)
		}
		if v.GroupUUID != p.uuid {
			return nil, connector.Errorf(connector.CodeUnavailable, "%s is in volume group %.60q by now, and not in %s", v.Name, v.GroupUUID, p.uuid)
		}
		v.open = v.DeviceOpen == "1"
	}
	r.pool = r.named(p.pool)
	switch {
	case r.pool == nil:
		return nil, connector.Errorf(connector.CodeUnavailable, "volume group %s has no thin pool %s now", p.group, p.pool)
	case !slices.Contains(strings.Split(r.pool.Layout, ","), "pool") || !slices.Contains(strings.Split(r.pool.Layout, ","), "thin"):
		return nil, connector.Errorf(connector.CodeInvalid, "%s/%s is no thin pool (%s)", p.group, p.pool, r.pool.Layout)
	case r.pool.Zero != "1":
		return nil, connector.Errorf(connector.CodeInvalid, "thin pool %s/%s does not zero what it allots, so that a new volume could show another's data; lvchange --zero y turns that on", p.group, p.pool)
	}
	if r.extentBytes, err = strconv.ParseInt(r.pool.ExtentSize, 10, 64); err != nil || r.extentBytes <= 0 {
		return nil, connector.Errorf(connector.CodeFailed, "lvs says that extents have %.40q bytes", r.pool.ExtentSize)
	}
	return r, nil
}

func (r *report) named(name string) *logical {
	i := slices.IndexFunc(r.volumes, func(v logical) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &r.volumes[i]
}

func (r *report) find(name string) (*logical, error) {
	v := r.named(name)
	if v == nil || v.PoolLV != r.place.pool {
		return nil, connector.Errorf(connector.CodeNotFound, "thin pool %s/%s has no volume %s", r.place.group, r.place.pool, name)
	}
	return v, nil
}

// facts describes the pool. Without a percentage from lvs, the pool is not active and has no free
// space now.
func (r *report) facts() *connector.Pool {
	used, err := strconv.ParseFloat(r.pool.DataPercent, 64)
	if err != nil {
		used = 100
	}
	return &connector.Pool{
		Directory: r.place.directory(), CapacityBytes: r.pool.sizeBytes,
		FreeBytes: max(0, r.pool.sizeBytes-int64(float64(r.pool.sizeBytes)*used/100)), GranularityBytes: r.extentBytes,
		Warning: r.warning,
		Verbs:   []string{connector.VerbInspect, connector.VerbCreate, connector.VerbExtend, connector.VerbDelete},
	}
}

func (r *report) checkSize(bytes int64) error {
	if bytes%r.extentBytes != 0 {
		return connector.Errorf(connector.CodeInvalid, "%d bytes are no multiple of the extents of %s, which have %d", bytes, r.place.group, r.extentBytes)
	}
	return nil
}

func (v *logical) identity() string {
	return "LVM-" + strings.ReplaceAll(v.GroupUUID+v.UUID, "-", "")
}

func (v *logical) is(identity string) error {
	if v.identity() == identity {
		return nil
	}
	return connector.Errorf(connector.CodeChanged, "%s is %s by now, and not %.200s", v.Name, v.identity(), identity)
}

func (v *logical) opID() string {
	for tag := range strings.SplitSeq(v.Tags, ",") {
		if id, found := strings.CutPrefix(tag, opTag); found {
			return id
		}
	}
	return ""
}
