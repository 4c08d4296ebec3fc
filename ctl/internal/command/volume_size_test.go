// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

func TestAVolumeThatIsTheBeginningOfSomethingLargerHasBothSizes(t *testing.T) {
	for want, l := range map[string]api.Location{
		"1GiB":         {SizeBytes: 1 << 30},
		"1GiB of 2GiB": {SizeBytes: 1 << 30, ImageBytes: 2 << 30},
	} {
		if got := volumeSize(l.SizeBytes, l, humanize.Bytes); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
