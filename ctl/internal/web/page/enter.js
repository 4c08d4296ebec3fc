// SPDX-License-Identifier: Apache-2.0

// What the link opens: it keeps the key, which the browser has for pages of this address and port alone, and
// goes on to the page.

localStorage.setItem('key', document.querySelector('meta[name=key]').content);
location.replace('/');
