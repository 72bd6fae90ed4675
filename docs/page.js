// A fold opens for who follows a link into it, and all of them for who prints.
const open = folds => folds.forEach(fold => { fold.open = true; });
const follow = () => {
  const there = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!there) return;
  open(there.querySelectorAll(':scope > details.fold'));
  for (let fold = there.closest('details.fold'); fold; fold = fold.parentElement.closest('details.fold')) open([fold]);
  there.scrollIntoView();
};
addEventListener('hashchange', follow);
addEventListener('DOMContentLoaded', follow);
addEventListener('beforeprint', () => open(document.querySelectorAll('details.fold')));

// The search shows where a word stands by reading the pages found, which browsers forbid in pages that are files.
if (location.protocol === 'file:') DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
