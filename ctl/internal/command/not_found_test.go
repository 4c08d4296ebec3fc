// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

var listing = regexp.MustCompile("; `volferryctl ([a-z]+) ([a-z]+)( --all)?` shows ")

func TestWhatIsNotThereNamesACommandThatListsWhatIs(t *testing.T) {
	app := newApp(new(bytes.Buffer), new(bytes.Buffer))
	for _, noun := range []string{"host", "pool", "volume type", "volume", "instance", "attachment", "migration", "drain", "operation"} {
		for _, e := range []*api.Error{api.NotFound(noun, "nope"), api.NotFoundHere(noun, "nope")} {
			if !strings.HasPrefix(e.Message, "there is no "+noun+` "nope"`) || e.Code != api.CodeNotFound {
				t.Errorf("%s: %s: %s", noun, e.Code, e.Message)
			}
			words := listing.FindStringSubmatch(e.Message)
			if words == nil {
				t.Errorf("%s: no command in %q", noun, e.Message)
				continue
			}
			parent := app.Command(words[1])
			if parent == nil {
				t.Errorf("%s: there is no command %s", noun, words[1])
				continue
			}
			found := false
			for _, sub := range parent.Subcommands {
				found = found || sub.HasName(words[2])
			}
			if !found {
				t.Errorf("%s: there is no command %s %s", noun, words[1], words[2])
			}
		}
	}
}
