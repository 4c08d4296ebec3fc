# bash completion of volferryctl
_volferryctl() {
	mapfile -t COMPREPLY < <(volferryctl __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _volferryctl volferryctl
