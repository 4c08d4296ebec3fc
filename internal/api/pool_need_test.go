// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestAVolumeNeedsPoolThePoolThatHasABaseImage(t *testing.T) {
	dir := api.Pool{Name: "old", Host: "a", Type: "dir", Path: "/old/"}
	group := api.Pool{Name: "old", Host: "a", Type: "logical", Path: "/dev/vg-1"}
	for name, tc := range map[string]struct {
		pool  api.Pool
		host  string
		bases []string
		want  string
	}{
		"in its directory":               {dir, "a", []string{"/old/t.qcow2"}, "/old/t.qcow2"},
		"further below":                  {dir, "a", []string{"/old/x/t.qcow2"}, "/old/x/t.qcow2"},
		"the second":                     {dir, "a", []string{"/new/t", "/new/../old/t"}, "/new/../old/t"},
		"beside":                         {dir, "a", []string{"/older/t"}, ""},
		"of another host":                {dir, "b", []string{"/old/t"}, ""},
		"no base image":                  {dir, "a", nil, ""},
		"a logical volume":               {group, "a", []string{"/dev/vg-1/t"}, "/dev/vg-1/t"},
		"by the mapper":                  {group, "a", []string{"/dev/mapper/vg--1-t"}, "/dev/mapper/vg--1-t"},
		"of a longer group":              {group, "a", []string{"/dev/mapper/vg--1--2-t"}, ""},
		"a directory of the whole host":  {api.Pool{Name: "old", Host: "a", Type: "disk", Path: "/dev"}, "a", []string{"/dev/vg/t"}, ""},
		"a pool of which no path is had": {api.Pool{Name: "old", Host: "a", Type: "dir"}, "a", []string{"/old/t"}, ""},
	} {
		var images []api.BaseImage
		for _, b := range tc.bases {
			images = append(images, api.BaseImage{Path: b, Format: api.FormatQcow2})
		}
		v := api.Volume{Name: "web", Host: tc.host, Location: api.Location{Pool: "fast", Backing: api.NewBacking(images)}}
		got := ""
		if err := v.NeedsPool(&tc.pool); err != nil {
			got, _ = err.Details[api.DetailBaseImage].(string)
			if !strings.Contains(err.Message, "volferryctl volume migrate web --to-pool fast") {
				t.Errorf("%s: %s does not say what to do", name, err.Message)
			}
		}
		if got != tc.want {
			t.Errorf("%s: reads %q, want %q", name, got, tc.want)
		}
		v.Location.Pool = "old"
		if err := v.NeedsPool(&tc.pool); err != nil {
			t.Errorf("%s: a volume of the pool itself: %v", name, err)
		}
	}
}
