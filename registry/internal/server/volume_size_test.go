// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/store"
)

// If the size of a volume is set too large, every host refuses the volume. An operator can correct
// it to the size that the image has.
func TestAnOperatorSetsASizeThatAHostHasSeen(t *testing.T) {
	const real, wrong = 1048576, 1 << 60
	for name, c := range map[string]struct {
		body  string
		path  string // in the host's report
		found int64
		code  api.Code
		says  string
		asked bool
	}{
		"as the image":         {body: `{"size_bytes":1048576,"evidence":"the order"}`, path: "/fast/free", found: real, asked: true},
		"by a host by name":    {body: `{"size_bytes":1048576,"evidence":"the order","host":"a"}`, path: "/fast/free", found: real, asked: true},
		"not as the image":     {body: `{"size_bytes":1048576,"evidence":"the order"}`, path: "/fast/free", found: 2 * real, asked: true, code: api.CodeSizeMismatch, says: "host a reports that its image /fast/free has 2MiB"},
		"of another image":     {body: `{"size_bytes":1048576,"evidence":"the order"}`, path: "/fast/x", found: real, asked: true, code: api.CodeConflict, says: "ask again"},
		"without evidence":     {body: `{"size_bytes":1048576,"evidence":" "}`, code: api.CodeInvalidArgument, says: "evidence"},
		"no size of a disk":    {body: `{"size_bytes":100,"evidence":"the order"}`, code: api.CodeInvalidArgument, says: "512"},
		"by a host without it": {body: `{"size_bytes":1048576,"evidence":"the order","host":"b"}`, code: api.CodeNotYourHost, says: "does not reach"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				expect.Value(s.store.Volumes.Grow(t.Context(), store.Call{}, freeID, api.VolumeGrow{FromBytes: real, SizeBytes: wrong}))(t)
				p := s.begin(t, "POST", "/v1/volumes/free/size", "k", c.body)
				tasks := s.fetch(t, hostID)
				if len(tasks) > 0 != c.asked {
					t.Fatalf("host a is asked %+v", tasks)
				}
				if c.asked {
					if tasks[0].Method != "GET" || tasks[0].Path != "/v1/volumes/"+freeID+"/image" {
						t.Errorf("host a is asked %s %s", tasks[0].Method, tasks[0].Path)
					}
					s.reply(t, hostID, tasks[0].ID, 200, fmt.Sprintf(`{"volume_image":{"path":%q,"size_bytes":%d}}`, c.path, c.found))
				}
				status, body := p.answer()
				now := expect.Value(s.store.Volumes.Get(t.Context(), freeID, store.Viewer{}))(t)
				if c.code != "" {
					if refusal := expect.Refusal([]byte(body)); refusal == nil || refusal.Code != c.code || !strings.Contains(refusal.Message, c.says) || now.SizeBytes != wrong {
						t.Errorf("%d %s, want %s with %q; the volume has %d", status, body, c.code, c.says, now.SizeBytes)
					}
					return
				}
				if status != 200 || now.SizeBytes != real || now.Location.SizeBytes != real {
					t.Errorf("%d %s; the volume is %+v", status, body, now)
				}
				events := expect.Value(s.store.Trail.Events(t.Context(), 0))(t)
				last := events[len(events)-1]
				details := string(expect.Value(json.Marshal(last.Details))(t))
				if last.What != "volume.set_size" || last.From != fmt.Sprint(wrong) || last.To != fmt.Sprint(real) || !strings.Contains(details, `"evidence":"the order"`) || !strings.Contains(details, `"seen_by":"a"`) {
					t.Errorf("the trail ends with %+v", last)
				}
			})
		})
	}
}

func TestTheSizeOfAVolumeThatMovesIsNotSet(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		p := s.begin(t, "POST", "/v1/volumes/moving/size", "k", `{"size_bytes":1048576,"evidence":"the order"}`)
		if got := p.code(); got != api.CodeMigrationActive {
			t.Errorf("%s", got)
		}
	})
}
