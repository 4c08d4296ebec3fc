// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sizesVariable names the sizes of volumes, in GiB, for which the silence of their guests is
// measured: it takes minutes and tens of GiB of reading, so nobody has it done by the way.
const sizesVariable = "VOLFERRY_LIVE_SIZES_GIB"

// The silence of guests that write all the time is the same for volumes of each size, where only
// the guests' writes are real and the rest is holes. Set VOLFERRY_LIVE_SIZES_GIB=1,4,16.
func TestSilenceOfAMoveWhileAllWriteDoesNotGrowWithTheVolume(t *testing.T) {
	list := os.Getenv(sizesVariable)
	if list == "" {
		t.Skip("SKIPPED: " + sizesVariable + " is not set")
	}
	longest := map[string]time.Duration{}
	for _, text := range strings.Split(list, ",") {
		gib, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s=%s: %v", sizesVariable, list, err)
		}
		t.Run(fmt.Sprint(gib, " GiB"), func(t *testing.T) {
			for _, silence := range moveLive(t, startSharedLiveOf(t, shape{bytes: int64(gib) << 30}, "hv1", "hv2")) {
				longest[text] = max(longest[text], silence)
			}
		})
	}
	t.Logf("longest silence by size in GiB: %v", longest)
}
