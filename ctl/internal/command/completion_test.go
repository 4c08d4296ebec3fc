// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/ctl/internal/session"
)

// completed returns bash's completions of the current word, if volferryctl knows these names.
func completed(t *testing.T, current string, names ...string) []string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed: its completion was not tried")
	}
	script, err := completionScripts.ReadFile("completion/" + session.Program + ".bash")
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "names")
	if err := os.WriteFile(list, []byte(strings.Join(names, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bash, "--norc", "-c", string(script)+`
volferryctl() { cat "$LIST"; }
COMP_WORDS=(volferryctl instance show "$CURRENT") COMP_CWORD=3
_volferryctl
(( ${#COMPREPLY[@]} == 0 )) || printf '%s\n' "${COMPREPLY[@]}"`)
	cmd.Env = append(os.Environ(), "LIST="+list, "CURRENT="+current)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(string(out), `\ `, "\x00"))
}

func TestANameIsOneWordOfTheShellAndNoCommand(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "run")
	names := []string{"web", "web server", "a;touch " + mark, "$(touch " + mark + ")", "`touch " + mark + "`", "it's", "~root", "a*", "a&b|c>d"}
	got := completed(t, "", names...)
	if len(got) != len(names) {
		t.Fatalf("%d words for %d names: %q", len(got), len(names), got)
	}
	for i, word := range got {
		word = strings.ReplaceAll(word, "\x00", `\ `)
		out, err := exec.CommandContext(t.Context(), "bash", "--norc", "-c", "printf '<%s>' "+word).Output()
		if err != nil || string(out) != "<"+names[i]+">" {
			t.Errorf("name %q is completed as %s, which the shell reads as %s (%v)", names[i], word, out, err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a name was run as a command")
	}
}

func TestWithinQuotesOnlyNamesThatNeedNoneAreOffered(t *testing.T) {
	for _, current := range []string{`"`, `'`} {
		if got := completed(t, current, "web", "$(reboot)", "web server"); len(got) != 1 || got[0] != "web" {
			t.Errorf("within %s: %q is offered", current, got)
		}
	}
}
