// SPDX-License-Identifier: Apache-2.0

package hosttest

// Each returns a function that visits a list as a registry's client does, for fakes that have the
// whole list.
func Each[T any](all []T, err error) func(do func(*T) error) error {
	return func(do func(*T) error) error {
		if err != nil {
			return err
		}
		for i := range all {
			if err := do(&all[i]); err != nil {
				return err
			}
		}
		return nil
	}
}
