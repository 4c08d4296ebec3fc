// SPDX-License-Identifier: Apache-2.0

package image

// AttributesLost describes the attributes of the file at path that a new file in a directory would
// lack. filled is true if another program will make the file, with content: then only the
// directory gives it attributes.
func (s Storage) AttributesLost(path, dir string, filled bool) (left []string, err error) {
	has := s.at(path).attributes(path)
	if has == (attributes{}) {
		return nil, nil
	}
	answered := answered("files in "+dir+" are stored alike", func() error {
		f, _, remove, err := trialFile(dir)
		if err != nil {
			return err
		}
		defer remove()
		if filled {
			if _, err := f.Write([]byte{0}); err != nil {
				return err
			}
			if err := f.Sync(); err != nil { // otherwise it has no extent yet
				return err
			}
		}
		left = has.give(f)
		return nil
	})
	if answered != nil {
		return nil, answered
	}
	return left, nil
}
