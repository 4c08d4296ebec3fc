// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/vm/boot"
)

const (
	systemd     = "/lib/systemd/systemd"
	commandUnit = "command.service"
	unitDir     = "/run/systemd/system/"
)

// becomeSystemd has systemd take the place of this process and run the command in a unit. That says
// how the command ended, and turns the machine off. No other unit starts by itself.
func becomeSystemd(plan boot.Plan) error {
	port, err := exitPort()
	if err != nil {
		return err
	}
	var unit strings.Builder
	fmt.Fprintf(&unit, `[Unit]
DefaultDependencies=no
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate
[Service]
Type=oneshot
StandardOutput=file:/dev/console
StandardError=inherit
LimitNOFILE=65536
TasksMax=infinity
Environment=HOME=/root PATH=%s
WorkingDirectory=%s
ExecStopPost=/bin/sh -c 'case "$$EXIT_STATUS" in "" | *[!0-9]*) EXIT_STATUS=1 ;; esac; printf %%%%s "$$EXIT_STATUS" >%s'
`, path, plan.Dir, port)
	for _, variable := range plan.Env {
		fmt.Fprintf(&unit, "Environment=%s\n", word(variable))
	}
	unit.WriteString("ExecStart=")
	for _, arg := range plan.Command {
		unit.WriteString(strings.ReplaceAll(word(arg), "$", "$$") + " ")
	}
	err = errors.Join(os.MkdirAll(unitDir, 0o755), os.WriteFile(unitDir+commandUnit, []byte(unit.String()+"\n"), 0o644))
	if err != nil {
		return fmt.Errorf("write the unit of the command: %w", err)
	}
	return fmt.Errorf("start systemd: %w", unix.Exec(systemd, []string{systemd, "--unit=" + commandUnit}, []string{"PATH=" + path}))
}

// word is a word of a unit file.
func word(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(text) + `"`
}
