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
addEventListener('beforeprint', () => open(document.querySelectorAll('details.fold, details.hide')));

// The search shows where a word stands by reading the pages found, which browsers forbid in pages that are files.
if (location.protocol === 'file:') DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// Of the sections in the sidebar the lessons are open, and the one that has this page.
const CLOSED = ['Dossiers', 'How to', 'Library', 'Reference'];
addEventListener('DOMContentLoaded', () => document.querySelectorAll('.sidebar-tree .caption').forEach(caption => {
  const list = caption.nextElementSibling;
  if (!CLOSED.includes(caption.textContent.trim()) || list.querySelector('.current')) return;
  list.hidden = true;
  caption.classList.add('closed');
  caption.tabIndex = 0;
  const toggle = () => { list.hidden = !list.hidden; caption.classList.toggle('closed'); };
  caption.addEventListener('click', toggle);
  caption.addEventListener('keydown', event => { if (event.key === 'Enter') toggle(); });
}));
