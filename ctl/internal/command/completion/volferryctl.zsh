#compdef volferryctl
# zsh completion of volferryctl
_volferryctl() {
	local -a candidates
	candidates=(${(f)"$(volferryctl __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	if (( ${#candidates} )); then
		# It quotes what the shell would read otherwise.
		compadd -a candidates
	else
		_files
	fi
}
if [ "$funcstack[1]" = "_volferryctl" ]; then
	_volferryctl "$@"
else
	compdef _volferryctl volferryctl
fi
