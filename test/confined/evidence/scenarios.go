// SPDX-License-Identifier: Apache-2.0

// Package evidence is the evidence for hosts that confine guests: the scenarios and their tests,
// the lines that the tests print, and the page of the documentation with the results. It starts no
// machine and knows no guest.
package evidence

import "strings"

// A Scenario is a use of Volferry with a guest.
type Scenario struct {
	Does string
	Test string // of test/e2e
}

// Scenarios are the rows of the page.
var Scenarios = []Scenario{
	{"what a guest is denied is in the kernel's log", "TestTheKernelLogsWhatAConfinedGuestIsDenied"},
	{"a running guest moves, raw and qcow2 to each other", "TestRunningGuestKeepsEveryWriteWhateverTheFormats"},
	{"a guest with labels of its own moves, and a confined one", "TestGuestsWithLabelsOfTheirOwnMove"},
	{"a running guest moves between files and devices", "TestRunningGuestMovesBetweenFilesAndDevices"},
	{"a paused guest moves", "TestPausedGuestIsMovedAndStaysPaused"},
	{"a stopped guest moves, and starts", "TestStoppedGuestIsMovedAndBootsFromTheDestination"},
	{"the guest stops and starts in the middle of a move", "TestGuestMayEndAndBeginInTheMiddle"},
	{"the guest is saved and restored in the middle of a move", "TestAGuestThatIsSavedInAMoveIsRestoredAndTheMoveEnds"},
	{"cancel before, during and after the copy", "TestCancelBringsTheGuestBackAtAnyTimeBeforeTheSwitch"},
	{"a denied cancel leaves the move to its end", "TestACancelThatAppArmorDeniesLeavesTheMoveToItsEnd"},
	{"a denied cancel, without the rule", "TestACancelThatAppArmorDeniesGoesOnWithoutTheRule"},
	{"the volumes of a guest move one after the other", "TestTheVolumesOfAConfinedGuestMoveOneAfterTheOther"},
	{"instance migrate", "TestAllVolumesOfARunningGuestMoveByOneCommand"},
	{"pool drain --parallel", "TestADrainMovesTheVolumesOfSeveralGuestsAtOnce"},
	{"a shared volume, --pause-all and --live-shared", "TestAVolumeThatGuestsShareMovesUnderBoth"},
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
	{"daemon killed at any step of a move", "TestKillAtEveryStepOfAMoveUnderARunningGuest"},
	{"libvirtd killed at any step of a move", "TestKillOfLibvirtdAtEveryStepOfAMove"},
	{"QEMU killed at any step of a move", "TestKillOfTheGuestAtEveryStepOfAMove"},
	{"host loses its power at any step of a move", "TestKillOfTheWholeHostAtEveryStepOfAMove"},
	{"daemon killed at any step of a move with --pause-all", "TestKillAtEveryStepOfAMoveWithAllGuestsPaused"},
	{"package installed again in the middle of a move", "TestThePackageIsInstalledAgainInAMoveOfAConfinedGuest"},
	{"owners and labels of images in each phase of a move", "TestEachImageHasItsOwnersAndLabelsInEachPhaseOfAMove"},
}

// Pattern matches the names of the tests of the scenarios, for -test.run.
func Pattern() string {
	names := make([]string, len(Scenarios))
	for i, s := range Scenarios {
		names[i] = s.Test
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
