// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"
)

func TestOnlyOpsThatStandAndBelongToNoMigrationAreNamed(t *testing.T) {
	ops := []Op{
		{ID: "runs", Kind: "volume_resize", State: "running"},
		{ID: "moves", Kind: "migration_copy", State: OpNeedsOperator, MigrationID: "m"},
	}
	if check := CheckOps(ops); check.Status != "ok" || CountStanding(ops) != 0 {
		t.Errorf("%d, %+v, want none", CountStanding(ops), check)
	}
	ops = append(ops,
		Op{ID: "a", Kind: "migration_delete_source", Subject: "volume db", State: OpNeedsOperator, Error: Errorf(CodeStateForbidden, "the pool\nis off"), Next: "virsh pool-start p"},
		Op{ID: "b", Kind: "instance_save", State: OpNeedsOperator})
	check := CheckOps(ops)
	if check.Status != "fail" || CountStanding(ops) != 2 {
		t.Errorf("%d, %+v, want 2 that fail", CountStanding(ops), check)
	}
	for _, want := range []string{"operation a (migration_delete_source, volume db) waits for an operator: the pool is off", "operation b (instance_save)"} {
		if !strings.Contains(check.Message, want) {
			t.Errorf("%q lacks %q", check.Message, want)
		}
	}
	if lines := strings.Split(check.Advice, "\n"); len(lines) != 2 || lines[0] != "a: virsh pool-start p" || !strings.HasPrefix(lines[1], "b: mend what the error says") {
		t.Errorf("the advice is %q", check.Advice)
	}
}
