// SPDX-License-Identifier: Apache-2.0

package request

import "testing"

// The inputs are from ops of attachments, instances, volumes and migrations.
func TestEveryKindOfOpSaysWhatItIsAbout(t *testing.T) {
	for input, want := range map[string]string{
		`{"attachment_id":"a","volume_id":"v","volume_name":"db","instance_id":"i","instance_name":"web"}`: "volume db at instance web",
		`{"instance_id":"i","instance_name":"web","host":"h"}`:                                             "instance web",
		`{"volume":{"id":"v","name":"db"},"unlink":"/x"}`:                                                  "volume db",
		`{"volume_id":"v"}`: "volume v",
		`{"spec":{"volume_id":"v","volume_name":"db"},"request":"r"}`: "volume db",
		`{}`: "",
		`[]`: "",
	} {
		if got := subjectOf([]byte(input)); got != want {
			t.Errorf("%s is about %q, want %q", input, got, want)
		}
	}
}
