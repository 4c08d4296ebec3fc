// SPDX-License-Identifier: Apache-2.0

package confined

import "strings"

// scenarios are what Volferry does with guests and images, and the tests of it in test/e2e.
var scenarios = []struct{ does, test string }{
	{"what a guest is denied is in the kernel's log", "TestTheKernelLogsWhatAConfinedGuestIsDenied"},
	{"a running guest moves, raw and qcow2 to each other", "TestRunningGuestKeepsEveryWriteWhateverTheFormats"},
	{"a running guest moves between files and devices", "TestRunningGuestMovesBetweenFilesAndDevices"},
	{"a paused guest moves", "TestPausedGuestIsMovedAndStaysPaused"},
	{"a stopped guest moves, and starts", "TestStoppedGuestIsMovedAndBootsFromTheDestination"},
	{"the guest stops and starts in the middle of a move", "TestGuestMayEndAndBeginInTheMiddle"},
	{"cancel before, during and after the copy", "TestCancelBringsTheGuestBackAtAnyTimeBeforeTheSwitch"},
	{"a denied cancel leaves the move to its end", "TestACancelThatAppArmorDeniesLeavesTheMoveToItsEnd"},
	{"a denied cancel, without the rule", "TestACancelThatAppArmorDeniesGoesOnWithoutTheRule"},
	{"the volumes of a guest move one after the other", "TestTheVolumesOfAConfinedGuestMoveOneAfterTheOther"},
	{"instance migrate", "TestAllVolumesOfARunningGuestMoveByOneCommand"},
	{"mirror", "TestMirrorMovesADiskUnderARunningGuest"},
	{"NBD exports", "TestAVolumeGoesFromAndToExportsUnderARunningGuest"},
	{"LUKS", "TestALUKSContainerMovesUnderItsRunningGuestEncryptedAllTheTime"},
	{"linked clone becomes a volume of its own", "TestLinkedCloneOfARunningGuestBecomesAVolumeOfItsOwn"},
	{"linked clone keeps its base images", "TestLinkedCloneOfARunningGuestKeepsItsBaseImages"},
	{"attach and detach", "TestVolumeComesToARunningGuestAndLeavesIt"},
	{"resize, and a move of the larger volume", "TestAVolumeGrowsUnderARunningGuestAndMovesWhole"},
	{"boot volume changed for another", "TestRootVolumeOfAStoppedInstanceIsChangedForAnotherAndBack"},
	{"shelve and unshelve", "TestTheNVRAMOfAGuestComesBackFromTheShelf"},
	{"a full overlay", "TestAGuestWhoseOverlayWasFullGoesOnWhenThereIsRoom"},
	{"owners and modes of images survive a move", "TestRightsOnAVolumeSurviveItsMoves"},
}

// allScenarios is a pattern for the names of their tests.
func allScenarios() string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.test
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
